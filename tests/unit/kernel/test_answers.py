"""What the kernel's Python makes of questions and answers, without a server."""

import importlib.util
import json
import sys
from typing import Any

import pytest
import structlog

from fencepost.errors import Mismatch
from fencepost.kernel import call, idempotency, job, outbox, rate
from fencepost.kernel.idempotency import Claim
from fencepost.kernel.job_queries import JobOutcome
from fencepost.kernel.lease import owner_name


def test_documents_are_the_same_where_json_has_no_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    spec = importlib.util.spec_from_file_location("call_without_c", call.__file__)
    assert spec is not None
    assert spec.loader is not None
    plain: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, plain)
    spec.loader.exec_module(plain)

    value = {"ä": [1, 2.5, None, True], "b": {"c": '"'}}
    assert (
        plain.document("x", value) == call.document("x", value) == '{"ä":[1,2.5,null,true],"b":{"c":"\\""}}'
    )


def test_what_every_job_of_a_batch_leaves_by_default_is_not_sent() -> None:
    plain = job.Finish(1, 1)

    def sent_for(other: job.Finish) -> tuple[object, ...]:
        return tuple(job.finish_many([plain, other], "w").arguments[3:5])

    assert job.finish_many([plain], "w").arguments == ([1], [1], "w", None, None, None)
    assert sent_for(job.Finish(2, 1, "partly")) == (["ok", "partly"], [None, None])
    assert sent_for(job.Finish(2, 1, result={"n": 1})) == (["ok", "ok"], [None, '{"n":1}'])


def test_no_two_starts_have_the_same_owner() -> None:
    assert owner_name("worker") != owner_name("worker")
    assert owner_name("worker").startswith("worker@")


def test_a_digest_is_of_method_and_body_and_not_of_the_order_of_keys() -> None:
    one = idempotency.digest("pay", {"a": 1, "b": 2})

    assert one == idempotency.digest("pay", {"b": 2, "a": 1})
    assert one != idempotency.digest("refund", {"a": 1, "b": 2})
    assert one != idempotency.digest("pay", {"a": 1, "b": 3})


def test_a_claim_is_the_one_a_replay_or_a_refusal() -> None:
    claimed, replayed, other = (Claim(outcome, None, None) for outcome in ("claimed", "replay", "mismatch"))

    assert (claimed.claimed, claimed.replayed, claimed.refusal("s", "k")) == (True, False, None)
    assert (replayed.claimed, replayed.replayed, replayed.refusal("s", "k")) == (False, True, None)
    refusal = other.refusal("player:7", "req-9")
    assert isinstance(refusal, Mismatch)
    assert str(refusal).startswith("request player:7/req-9: mismatch. ")


def test_an_outcome_is_final_or_not() -> None:
    assert JobOutcome("finished", "finished", 1, 1, None, None).is_final
    assert not JobOutcome("running", None, 1, 1, None, None).is_final


def test_how_long_a_loop_may_sleep_is_asked_by_queue() -> None:
    assert job.next_due("mail").arguments == ("mail",)


@pytest.mark.parametrize("with_c", [True, False])
def test_a_document_is_encoded_as_it_is_and_what_json_has_no_word_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, with_c: bool
) -> None:
    if not with_c:
        monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    encode = vars(call)["_make_encoder"]()

    assert encode({"b": [1, "ä"], "a": {}}) == '{"b":[1,"ä"],"a":{}}'
    for wrong, error in (({(1, 2): 3}, TypeError), (float("nan"), ValueError), ({1, 2}, TypeError)):
        with pytest.raises(error):
            encode(wrong)


def test_many_messages_carry_the_trace_that_they_were_put_in_and_nothing_without_one() -> None:
    plain = outbox.put_many("mail", [1, {"a": 2}], keys=["k", None])
    assert plain.arguments == ("mail", ["k", None], ["1", '{"a":2}'], None)
    with structlog.contextvars.bound_contextvars(trace_id="abc"):
        traced = outbox.put_many("mail", [1, 2])
    assert traced.arguments == ("mail", None, ["1", "2"], ['{"trace_id":"abc"}'] * 2)


def test_a_rate_that_is_lifted_is_sent_as_nothing() -> None:
    declared = rate.declare({"send": rate.Limit(1, 2), "print": None})
    assert declared.arguments == (["send", "print"], [1.0, None], [2.0, None])
    assert rate.limit_queue("mail", rate.Limit(3, 4), "carol").arguments == ("mail", 3, 4, "carol")
    assert rate.limit_queue("mail", None, "carol").arguments == ("mail", None, None, "carol")

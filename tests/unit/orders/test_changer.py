"""What the broker's reports mean for a cancel or a replacement, decided without a broker."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost.http_client import Reply
from fencepost_orders._change_source import TakenChange
from fencepost_orders._changer import ChangePolicy, answered, asked, not_sent
from fencepost_orders.broker import BrokerOrder, Code, FoundOrder, LookupFinding, LookupScope

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
POLICY = ChangePolicy(retry_max=3)
CANCEL = TakenChange(
    *(1, 4, "cancel", "unknown", 7, {"qty": "10"}, None, "key", None, "b-1", "main", 1, 1),
    *(NOON, NOON, NOON, NOON, None, NOON + timedelta(seconds=5), NOON + timedelta(seconds=65)),
)
REPLACE = replace(CANCEL, kind="replace", terms={"qty": "7"}, client_id="replace-of-7")


def found(status: str, client_id: str = "key", **fields: Any) -> FoundOrder:
    return FoundOrder(LookupFinding.FOUND, BrokerOrder(client_id, "b", status, **fields))


OPEN = found("accepted", is_open=True)
FILLED = found("filled")
CANCELLED = found("cancelled", is_cancelled=True)
PART = found("cancelled", is_cancelled=True, fills=({"qty": "4"},))
REJECTED = found("rejected", live=False)
REPLACED = found("replaced", replaced_by="b-2")
NEW = found("accepted", "replace-of-7", is_open=True)
NEW_REJECTED = found("rejected", "replace-of-7", live=False)
ABSENT = FoundOrder(LookupFinding.ABSENT)
SILENT = FoundOrder(LookupFinding.NO_ANSWER, code=Code.BROKER_5XX)
OTHER = found("cancelled", "another-key", is_cancelled=True)
LOST: dict[str, Any] = {"last_error": Code.NETWORK_TIMEOUT}
REFUSED: dict[str, Any] = {"last_error": Code.BAD_REQUEST, "open_since": None}
LATER: dict[str, Any] = {"taken_at": NOON + timedelta(seconds=61)}


@pytest.mark.parametrize(
    ("change", "order", "outcome", "fate"),
    [
        (CANCEL, CANCELLED, "done", "none"),
        (CANCEL, PART, "done", "none"),
        (CANCEL, FILLED, "refused", "none"),
        (CANCEL, REJECTED, "refused", "none"),
        (CANCEL, REPLACED, "replaced", "none"),
        (CANCEL, OTHER, "asking", "unproved"),
        (CANCEL, ABSENT, "asking", "unproved"),
        (CANCEL, SILENT, "asking", "unproved"),
        (CANCEL, OPEN, "asking", "unproved"),
        (replace(CANCEL, **LATER), OPEN, "again", "unproved"),
        (replace(CANCEL, **LOST), OPEN, "again", "unproved"),
        (replace(CANCEL, **LOST, requests=3), OPEN, "asking", "unproved"),
        (replace(CANCEL, **REFUSED), OPEN, "refused", "none"),
        (replace(CANCEL, last_error=Code.BAD_REQUEST), OPEN, "asking", "unproved"),
    ],
)
def test_a_cancel(change: TakenChange, order: FoundOrder, outcome: str, fate: str) -> None:
    said = asked(change, order, None, LookupScope.ALL, POLICY)
    assert (said.outcome, said.fate, said.id, said.take) == (outcome, fate, 1, 4)


@pytest.mark.parametrize(
    ("change", "order", "replacement", "outcome", "fate"),
    [
        (REPLACE, REPLACED, NEW, "done", "none"),
        (REPLACE, CANCELLED, NEW, "done", "none"),
        (REPLACE, REPLACED, NEW_REJECTED, "done", "none"),
        (REPLACE, FILLED, NEW_REJECTED, "refused", "none"),
        (REPLACE, FILLED, ABSENT, "refused", "none"),
        (REPLACE, FILLED, SILENT, "asking", "unproved"),
        (REPLACE, REPLACED, ABSENT, "asking", "unproved"),
        (REPLACE, CANCELLED, ABSENT, "asking", "unproved"),
        (replace(REPLACE, **LATER), REPLACED, ABSENT, "refused", "none"),
        (replace(REPLACE, **LATER), CANCELLED, ABSENT, "refused", "none"),
        (REPLACE, OPEN, NEW, "asking", "unproved"),
        (REPLACE, OPEN, NEW_REJECTED, "refused", "not_this"),
        (REPLACE, OPEN, ABSENT, "asking", "unproved"),
        (replace(REPLACE, **LOST), OPEN, ABSENT, "again", "unproved"),
        (replace(REPLACE, **REFUSED), OPEN, ABSENT, "refused", "none"),
        (REPLACE, SILENT, NEW, "asking", "unproved"),
        (REPLACE, REPLACED, OTHER, "asking", "unproved"),
    ],
)
def test_a_replacement(
    change: TakenChange, order: FoundOrder, replacement: FoundOrder, outcome: str, fate: str
) -> None:
    said = asked(change, order, replacement, LookupScope.ALL, POLICY)
    assert (said.outcome, said.fate) == (outcome, fate)


def test_a_broker_that_shows_open_orders_only_does_not_say_that_it_cancelled_one() -> None:
    said = asked(CANCEL, ABSENT, None, LookupScope.OPEN, POLICY)
    assert (said.outcome, said.code) == ("refused", "TOO_LATE")


def test_what_is_done_is_stored_with_the_last_word_about_both_orders() -> None:
    said = asked(REPLACE, REPLACED, NEW, LookupScope.ALL, POLICY)
    assert (said.result["status"], said.result["open"]) == ("accepted", True)
    assert said.replaced["status"] == "replaced"
    assert asked(CANCEL, PART, None, LookupScope.ALL, POLICY).result["fills"] == [{"qty": "4"}]


@pytest.mark.parametrize(
    ("status", "outcome", "fate", "code", "health"),
    [
        (200, "asking", "unproved", None, "ok"),
        (204, "asking", "unproved", None, "ok"),
        (422, "asking", "not_this", "BAD_REQUEST", "ok"),
        (404, "asking", "not_this", "BAD_REQUEST", "ok"),
        (408, "asking", "unproved", "BROKER_5XX", "failed"),
        (429, "again", "not_this", "RATE_LIMITED", "limited"),
        (401, "again", "not_this", "UNAUTHORIZED", "failed"),
        (500, "asking", "unproved", "BROKER_5XX", "failed"),
        (302, "asking", "unproved", "BROKER_5XX", "failed"),
    ],
)
def test_no_answer_to_a_change_ends_it(
    status: int, outcome: str, fate: str, code: str | None, health: str
) -> None:
    said = answered(CANCEL, Reply(status, {}, b"so"), POLICY)
    assert (said.outcome, said.fate, said.code, said.health) == (outcome, fate, code, health)


def test_a_request_that_did_not_leave_is_sent_again_as_often_as_allowed() -> None:
    assert not_sent(CANCEL, "refused", POLICY).outcome == "again"
    used_up = not_sent(replace(CANCEL, requests=3), "refused", POLICY)
    assert (used_up.outcome, used_up.fate) == ("asking", "not_this")


def test_a_limit_of_questions_is_kept() -> None:
    limited = FoundOrder(LookupFinding.LIMITED, retry_after_seconds=900.0)
    said = asked(CANCEL, limited, None, LookupScope.ALL, POLICY)
    assert (said.outcome, said.health, said.delay_seconds) == ("asking", "ask_limited", 300.0)

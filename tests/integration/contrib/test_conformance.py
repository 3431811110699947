"""What an idempotent endpoint promises, the same for every framework. Redis plays no part: none runs here."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from fencepost import run
from fencepost.contrib._idempotent_endpoint import KeyedRequest, identify
from fencepost.embedded import Database
from fencepost.kernel import idempotency
from fencepost.testing import Clock, Proxy
from tests.integration.contrib.endpoint import SCOPE, Endpoint, Reply, Serve, request_body

DAY = 86_400


def words(admin: psycopg.Connection) -> list[str]:
    return [word for (word,) in admin.execute("select word from public.note order by ctid")]


def kept_keys(admin: psycopg.Connection) -> list[str]:
    return [key for (key,) in admin.execute("select key from fencepost.idempotency_key order by key")]


@pytest.mark.parametrize(("then", "status"), [("return", 201), ("reject", 402), ("binary", 200)])
def test_a_repeat_gets_the_first_answer_byte_for_byte(
    then: str, status: int, endpoint: Endpoint, admin: psycopg.Connection
) -> None:
    first = endpoint.post("k", "once", then)
    again = endpoint.post("k", "once", then)

    assert (first.status, first.is_replay, again.is_replay) == (status, False, True)
    assert again.without_mark() == first
    assert words(admin) == ["once"]


def test_a_raised_4xx_is_stored_and_what_was_written_is_not(
    endpoint: Endpoint, admin: psycopg.Connection
) -> None:
    first = endpoint.post("k", "lost", "abort")
    again = endpoint.post("k", "lost", "abort")

    assert (first.status, first.is_replay, again.is_replay) == (404, False, True)
    assert again.without_mark() == first
    assert (words(admin), kept_keys(admin)) == ([], ["k"])


@pytest.mark.parametrize(
    ("then", "status"),
    [("raise", 500), ("fail", 503), ("slow down", 429), ("grow", 500), ("stream", 500), ("die", 500)],
)
def test_without_a_final_answer_nothing_is_left_and_the_key_is_free(
    then: str, status: int, endpoint: Endpoint, admin: psycopg.Connection
) -> None:
    assert endpoint.post("k", "lost", then).status == status
    assert (words(admin), kept_keys(admin)) == ([], [])

    assert endpoint.post("k", "kept").status == 201
    assert words(admin) == ["kept"]


def test_of_fifty_at_once_one_takes_effect(endpoint: Endpoint, admin: psycopg.Connection) -> None:
    at_once = threading.Barrier(50)

    def post(_: int) -> Reply:
        at_once.wait()
        return endpoint.post("k", "once")

    with ThreadPoolExecutor(50) as threads:
        replies = list(threads.map(post, range(50)))

    answers = {reply.body for reply in replies if reply.status == 201}
    assert len(answers) == 1
    assert sum(reply.status == 201 and not reply.is_replay for reply in replies) == 1
    assert {reply.status for reply in replies} <= {201, 409}
    assert words(admin) == ["once"]
    assert endpoint.post("k", "once").body in answers


def test_a_key_that_another_transaction_holds_is_in_flight(
    endpoint: Endpoint, database: Database, admin: psycopg.Connection
) -> None:
    with psycopg.connect(database.url) as other:
        run(other, idempotency.claim(SCOPE, "k"))
        refused = endpoint.post("k", "once")
        other.rollback()

    assert (refused.status, refused.headers["retry-after"]) == (409, "1")
    assert b'"in_flight"' in refused.body
    assert words(admin) == []
    assert endpoint.post("k", "once").status == 201


def test_a_request_that_was_claimed_without_an_answer_is_a_duplicate(
    endpoint: Endpoint, database: Database, admin: psycopg.Connection
) -> None:
    request = identify(SCOPE, "k", True, "POST", "/notes", "", request_body("once", "return"))
    assert isinstance(request, KeyedRequest)
    with psycopg.connect(database.url) as other:
        run(other, idempotency.claim(SCOPE, "k", digest=request.digest))

    refused = endpoint.post("k", "once")

    assert refused.status == 409
    assert b'"duplicate"' in refused.body
    assert words(admin) == []


@pytest.mark.parametrize(("word", "path"), [("other", "/notes"), ("once", "/notes?page=2")])
def test_a_key_of_another_request_is_a_mismatch(
    word: str, path: str, endpoint: Endpoint, admin: psycopg.Connection
) -> None:
    endpoint.post("k", "once")

    refused = endpoint.post("k", word, path=path)

    assert refused.status == 422
    assert b'"mismatch"' in refused.body
    assert words(admin) == ["once"]


def test_each_scope_has_keys_of_its_own(endpoint: Endpoint, admin: psycopg.Connection) -> None:
    replies = [endpoint.post("k", user, path=f"/mine?user={user}") for user in ("ann", "bob", "ann")]

    assert [reply.is_replay for reply in replies] == [False, False, True]
    assert words(admin) == ["ann", "bob"]


@pytest.mark.parametrize(("key", "error"), [(None, b"missing_key"), ("k" * 256, b"invalid_key")])
def test_a_missing_or_wrong_key_is_refused(
    key: str | None, error: bytes, endpoint: Endpoint, admin: psycopg.Connection
) -> None:
    refused = endpoint.post(key, "never")

    assert refused.status == 400
    assert error in refused.body
    assert words(admin) == []


def test_where_no_key_is_required_a_request_without_one_runs_each_time(
    endpoint: Endpoint, admin: psycopg.Connection
) -> None:
    assert [endpoint.post(None, "each", path="/optional").status for _ in range(2)] == [201, 201]
    assert [endpoint.post("k", "once", path="/optional").is_replay for _ in range(2)] == [False, True]
    assert endpoint.post(None, "lost", "abort", path="/optional").status == 404
    assert words(admin) == ["each", "each", "once"]


def test_an_expired_key_is_a_new_request(clock: Clock, endpoint: Endpoint, admin: psycopg.Connection) -> None:
    first = endpoint.post("k", "twice")
    clock.advance(DAY + 1)
    run(admin, idempotency.clean(DAY, 100))

    second = endpoint.post("k", "twice")

    assert not second.is_replay
    assert second.body != first.body
    assert words(admin) == ["twice", "twice"]


@pytest.mark.parametrize(
    ("lose", "left", "is_replay"),
    [(Proxy.lose_commit, [], False), (Proxy.lose_commit_reply, ["once"], True)],
    ids=["before", "after"],
)
def test_a_connection_lost_at_commit(
    lose: Callable[[Proxy], object],
    left: list[str],
    is_replay: bool,
    serve: Serve,
    session_url: str,
    admin: psycopg.Connection,
) -> None:
    """Lost before it, nothing is left and the repeat runs; after it, the repeat gets the stored answer."""
    with Proxy.for_postgres(session_url) as proxy, serve(proxy.url) as endpoint:
        lose(proxy)
        assert endpoint.post("k", "once").status == 500
        assert words(admin) == left

        again = endpoint.post("k", "once")

    assert (again.status, again.is_replay) == (201, is_replay)
    assert words(admin) == ["once"]

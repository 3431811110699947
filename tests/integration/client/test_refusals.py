"""A refusal is an answer: counted, logged with what was seen, and written down for those who ask later."""

import psycopg
import pytest
from structlog.testing import capture_logs

from fencepost import Duplicate, Fencepost, NotFound, NotOwner
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel import _refusal as refusal
from fencepost.kernel import lease
from fencepost.settings import Settings
from tests.integration.client.facade import Facade, SyncFacade


def refusals_counted(facade: Facade, reason: str, noun: str) -> float | None:
    return facade.metrics.registry.get_sample_value(
        "fencepost_refusals_total", {"reason": reason, "noun": noun}
    )


def calls_timed(facade: Facade, function: str, outcome: str) -> float | None:
    labels = {"function": function, "outcome": outcome}
    return facade.metrics.registry.get_sample_value("fencepost_call_seconds_count", labels)


def fence_in_a_transaction(facade: Facade) -> None:
    with facade.transaction() as tx:
        tx.run(lease.fence("door", 9))


def test_a_refused_call_is_counted_and_timed(facade: Facade) -> None:
    with pytest.raises(NotFound):
        facade.run(lease.fence("door", 9))

    assert refusals_counted(facade, "not_found", "lease") == 1
    assert calls_timed(facade, "lease_fence", "not_found") == 1


def test_a_refusal_inside_a_transaction_is_counted_once(facade: Facade) -> None:
    with pytest.raises(NotFound):
        fence_in_a_transaction(facade)

    assert refusals_counted(facade, "not_found", "lease") == 1


def test_an_answered_call_is_timed(facade: Facade) -> None:
    facade.run(lease.acquire("door", "me", 60))

    assert calls_timed(facade, "lease_acquire", "ok") == 1


def test_a_claim_that_is_none_is_counted(facade: Facade) -> None:
    def claim() -> None:
        with facade.transaction() as tx:
            tx.claim("player:7", "grant-9")

    claim()
    with pytest.raises(Duplicate):
        claim()

    assert refusals_counted(facade, "duplicate", "request") == 1


def test_a_refusal_is_logged_with_the_row_that_was_seen(facade: Facade) -> None:
    facade.run(lease.acquire("door", "me", 60))

    with capture_logs() as events, pytest.raises(NotOwner):
        facade.run(lease.acquire("door", "you", 60))

    (event,) = [event for event in events if event["event"] == "refused"]
    assert (event["reason"], event["noun"], event["subject"]) == ("not_owner", "lease", "door")
    assert event["attempted"] == {"owner": "you", "op": "acquire"}
    assert event["seen"]["owner"] == "me"


def test_a_thousand_refusals_are_not_a_thousand_lines(facade: Facade) -> None:
    with capture_logs() as events:
        for _ in range(30):
            with pytest.raises(NotFound):
                facade.run(lease.fence("door", 9))

    assert len([event for event in events if event["event"] == "refused"]) < 10
    assert refusals_counted(facade, "not_found", "lease") == 30


def test_a_refusal_is_written_down_and_explained_later(
    facade: Facade, admin: psycopg.Connection, database: Database
) -> None:
    facade.run(lease.acquire("door", "me", 60))
    with pytest.raises(NotOwner):
        facade.run(lease.acquire("door", "you", 60))

    def is_recorded() -> bool:
        return any(m.event == "refused:not_owner" for m in facade.run(refusal.explain("lease:door")))

    Deadline(60, "the refusal is recorded").wait(is_recorded)
    (moment,) = [m for m in facade.run(refusal.explain("lease:door")) if m.event == "refused:not_owner"]
    assert moment.actor == facade.owner
    assert moment.detail["attempted"] == {"owner": "you", "op": "acquire"}
    assert moment.detail["seen"]["owner"] == "me"


def test_closing_writes_down_what_still_waits(database: Database, admin: psycopg.Connection) -> None:
    facade = SyncFacade(Fencepost(database.url, settings=Settings(pool_min=1, pool_max=1)))
    facade.open()
    for token in range(5):
        with pytest.raises(NotFound):
            facade.run(lease.fence("door", token + 1))

    facade.close()

    assert admin.execute("select count(*) from fencepost.refusals").fetchone() == (5,)


async def test_a_refusal_through_a_connection_of_the_users_own_can_be_noted(
    database: Database, admin: psycopg.Connection
) -> None:
    async with Fencepost(database.url) as fp:
        fp.note_refusal(NotOwner("no", noun="lease", subject="door", attempted={"token": 1}))

    assert admin.execute("select reason, subject from fencepost.refusals").fetchall() == [
        ("not_owner", "door")
    ]


def test_an_application_that_has_configured_no_log_hears_nothing(
    facade: Facade, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library that writes to stdout breaks the programs whose answer that is."""
    with pytest.raises(NotFound):
        facade.run(lease.fence("door", 9))

    assert capsys.readouterr().out == ""

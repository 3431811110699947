"""Requests without an id: they pass and are counted, until none comes any more; then they are refused."""

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.errors import InvalidInput, Mismatch
from fencepost.testing import Clock
from fencepost_players.mutations import _request_id_policy as request_id_policy
from fencepost_players.mutations.errors import InvalidArgument
from fencepost_players.mutations.pipeline import Pipeline
from tests.integration.mutations.counter import Addition, AddSome, add_some

HITS = AddSome(name="hits")
HOUR = 3600


async def test_in_phase_one_they_pass_and_are_counted_by_method(
    fp: Fencepost, counters: Pipeline[str, Addition]
) -> None:
    for _ in range(2):
        assert (await counters.run(add_some, "hits", HITS, request_id=None)).layer == "executed"
    await counters.run(add_some, "hits", HITS, request_id="r1")
    assert await fp.run(request_id_policy.rate("counters", HOUR)) == [
        request_id_policy.MissingIdRate("AddSome", 2, 0)
    ]
    assert await fp.run(request_id_policy.phase("counters")) == 1


async def test_the_phase_is_not_switched_while_any_came(
    fp: Fencepost, counters: Pipeline[str, Addition]
) -> None:
    await counters.run(add_some, "hits", HITS, request_id=None)
    with pytest.raises(Mismatch) as refused:
        await fp.run(request_id_policy.set_phase("counters", 2, HOUR))
    assert refused.value.seen["passed"] == 1
    assert await fp.run(request_id_policy.phase("counters")) == 1


async def test_in_phase_two_they_are_refused_and_the_way_back_is_free(
    fp: Fencepost, counters: Pipeline[str, Addition]
) -> None:
    await fp.run(request_id_policy.set_phase("counters", 2, HOUR, actor="ann"))
    with pytest.raises(InvalidArgument) as refused:
        await counters.run(add_some, "hits", HITS, request_id=None)
    assert refused.value.meta == {"argument": "request_id", "reason": "missing_request_id"}
    assert await fp.run(request_id_policy.rate("counters", HOUR)) == [
        request_id_policy.MissingIdRate("AddSome", 0, 1)
    ]
    # What was refused does not keep a service from phase 2.
    await fp.run(request_id_policy.set_phase("counters", 2, HOUR))
    await fp.run(request_id_policy.set_phase("counters", 1, HOUR))
    await counters.run(add_some, "hits", HITS, request_id=None)


async def test_what_came_before_the_window_does_not_count(database: Database) -> None:
    with Clock(database.admin_url) as clock:
        async with Fencepost(database.url) as fp:
            assert await fp.run(request_id_policy.note("mail", "Send")) == 1
            clock.advance(2 * HOUR)
            await fp.run(request_id_policy.set_phase("mail", 2, HOUR))
            assert await fp.run(request_id_policy.note("mail", "Send")) == 2
            assert await fp.run(request_id_policy.clean(HOUR, 100)) == 1
            for wrong in (0, 3):
                with pytest.raises(InvalidInput):
                    await fp.run(request_id_policy.set_phase("mail", wrong, HOUR))

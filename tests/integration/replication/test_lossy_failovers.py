"""The control of the guard: failovers that lose commits double effects without it, and none with it."""

from tests.integration.replication.lossy_failovers import GUARDED, UNGUARDED, own_directory, run_rounds


async def test_with_the_guard_no_effect_is_doubled_and_without_it_each_is() -> None:
    with own_directory() as directory:
        outcomes, _ = await run_rounds(2, directory)

    guarded, unguarded = outcomes[GUARDED], outcomes[UNGUARDED]
    assert (guarded.printed, guarded.doubled, guarded.tokens_issued_twice) == (2, 0, 0)
    assert (guarded.refused, guarded.epochs_raised) == (2, 2)
    assert (unguarded.doubled, unguarded.tokens_issued_twice, unguarded.refused) == (2, 2, 0)

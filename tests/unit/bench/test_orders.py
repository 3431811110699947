"""How the figures of the orders' benchmark are judged."""

from bench.orders import PEERS, Measured, goals

FAST: Measured = {"count": 1000, "seconds": 1.0}
SLOW: Measured = {"count": 1000, "seconds": 20.0}
GROWN: dict[int, Measured] = {10_000: FAST, 1_000_000: {"count": 1000, "seconds": 1.1}}


def contest(absent: str | None = None) -> dict[str, Measured]:
    peers: dict[str, Measured] = {peer.title: {} if peer.title == absent else SLOW for peer in PEERS}
    return {"one-by-one loop": SLOW, "fencepost": FAST, **peers}


def test_the_fastest_system_at_equal_cost_meets_every_goal() -> None:
    assert [goal.met for goal in goals(contest(), GROWN)] == [True] * (len(PEERS) + 2)


def test_a_peer_that_could_not_take_part_is_a_goal_that_is_not_met() -> None:
    absent = PEERS[0].title
    judged = {goal.name: goal.met for goal in goals(contest(absent), GROWN)}
    assert len(judged) == len(PEERS) + 2
    assert [name for name, met in judged.items() if not met] == [f"times {absent}, which was not measured"]

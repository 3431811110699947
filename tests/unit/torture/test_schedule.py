"""The schedule is a function of the seed."""

from itertools import islice

import pytest

from fencepost.torture.schedule import FAMILIES, KINDS, Blow, Role, chosen_kinds, schedule

JOBS = Role("jobs", 3, ("jobs.ack.before", "jobs.ack.after"))
LEASES = Role("leases", 2, (), uses_redis=False, bears_restores=True)
ORDERS = Role("orders", 2, ("orders.after_send",), bears_clock_jumps=False, uses_redis=False)


def blows(
    seed: int, kinds: list[str] | None = None, roles: tuple[Role, ...] = (JOBS, LEASES, ORDERS)
) -> list[Blow]:
    return list(islice(schedule(seed, kinds or list(KINDS), roles, gap_seconds=0.5), 2000))


def test_the_same_seed_has_the_same_blows_and_another_has_others() -> None:
    assert blows(7) == blows(7)
    assert blows(7) != blows(8)


def test_every_kind_comes_once_before_any_comes_again() -> None:
    first = [blow.kind for blow in blows(7)[: len(KINDS)]]

    assert sorted(first) == sorted(KINDS)
    assert first != [blow.kind for blow in blows(8)[: len(KINDS)]]


def test_nobody_suffers_what_he_cannot() -> None:
    found = blows(7)

    assert {blow.system for blow in found if blow.kind in ("crash", "stall")} == {"jobs", "orders"}
    assert {blow.system for blow in found if blow.kind == "clock-jump"} == {"jobs", "leases"}
    assert {blow.system for blow in found if blow.kind in FAMILIES["redis"]} == {"jobs"}
    assert {blow.system for blow in found if blow.at_redis} == {"jobs"}
    assert {blow.system for blow in found if blow.kind == "restore"} == {"leases"}


def test_a_kind_that_nobody_can_suffer_never_comes() -> None:
    assert blows(7, ["crash", "redis-wipe"], (LEASES,)) == []


def test_a_pause_is_longer_than_a_lease() -> None:
    assert min(blow.leases for blow in blows(7)) > 1


def test_places_and_points_are_those_of_the_system() -> None:
    for blow in blows(7):
        role = next(role for role in (JOBS, LEASES, ORDERS) if role.name == blow.system)
        assert 0 <= blow.place < role.processes
        assert blow.point in (role.points or ("",))


def test_faults_are_chosen_by_family_and_by_kind() -> None:
    assert chosen_kinds(["redis", "kill"]) == ["kill", *FAMILIES["redis"]]
    assert chosen_kinds([]) == [kind for kind in KINDS if kind not in ("power-cut", "restore")]
    assert chosen_kinds(["power"]) == ["power-cut"]
    with pytest.raises(ValueError, match="no fault flood; allowed: process, "):
        chosen_kinds(["kill", "flood"])

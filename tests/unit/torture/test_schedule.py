"""The schedule is a function of the seed."""

from collections import Counter
from itertools import islice

import pytest

from fencepost_torture._schedule import (
    FAMILIES,
    KINDS,
    POSTGRES_CLOCK,
    Fault,
    ProcessRole,
    abreast,
    chosen_kinds,
    schedule,
    unavailable,
)

JOBS = ProcessRole("jobs", 3, ("jobs.ack.before", "jobs.ack.after"))
LEASES = ProcessRole("leases", 2, (), uses_redis=False, bears_restores=True)
ORDERS = ProcessRole("orders", 2, ("orders.after_send",), bears_clock_jumps=False, uses_redis=False)


def planned_faults(
    seed: int, kinds: list[str] | None = None, roles: tuple[ProcessRole, ...] = (JOBS, LEASES, ORDERS)
) -> list[Fault]:
    return list(islice(schedule(seed, kinds or list(KINDS), roles, gap_seconds=0.5), 2000))


def test_the_same_seed_has_the_same_blows_and_another_has_others() -> None:
    assert planned_faults(7) == planned_faults(7)
    assert planned_faults(7) != planned_faults(8)


def test_every_kind_comes_once_before_any_comes_again() -> None:
    first, other = ([fault.kind for fault in planned_faults(seed, roles=(JOBS, LEASES))] for seed in (7, 8))

    assert sorted(first[: len(KINDS)]) == sorted(KINDS)
    assert first[: len(KINDS)] != other[: len(KINDS)]


def test_no_system_gets_a_fault_that_it_cannot_bear() -> None:
    found = planned_faults(7)

    assert {fault.system for fault in found if fault.kind in ("crash", "stall")} == {"jobs", "orders"}
    assert {fault.system for fault in found if fault.kind == "clock-jump"} == {"jobs", "leases"}
    assert {fault.system for fault in found if fault.kind == "node-clock-jump"} == {
        "jobs",
        "leases",
        "orders",
    }
    assert {fault.system for fault in found if fault.kind in FAMILIES["redis"]} == {"jobs"}
    assert {fault.system for fault in found if fault.at_redis} == {"jobs"}
    assert {fault.system for fault in found if fault.kind == "restore"} == {"leases"}


def test_a_kind_of_fault_that_no_system_bears_is_never_scheduled() -> None:
    assert planned_faults(7, ["crash", "redis-wipe"], (LEASES,)) == []


def test_the_clock_that_all_have_jumps_only_where_all_bear_it() -> None:
    assert planned_faults(7, [POSTGRES_CLOCK]) == []
    assert {fault.system for fault in planned_faults(7, [POSTGRES_CLOCK], (JOBS, LEASES))} == {
        "jobs",
        "leases",
    }


def test_a_pause_is_longer_than_a_lease() -> None:
    assert min(fault.leases for fault in planned_faults(7)) > 1


def test_places_and_points_are_those_of_the_system() -> None:
    for fault in planned_faults(7):
        role = next(role for role in (JOBS, LEASES, ORDERS) if role.name == fault.system)
        assert 0 <= fault.place < role.processes
        assert fault.point in (role.points or ("",))


def test_faults_are_chosen_by_family_and_by_kind() -> None:
    assert chosen_kinds(["redis", "kill"]) == ["kill", *FAMILIES["redis"]]
    by_name_only = {"power-cut", "restore", *FAMILIES["cluster"]}
    assert chosen_kinds([]) == [kind for kind in KINDS if kind not in by_name_only]
    assert chosen_kinds(["power"]) == ["power-cut"]
    with pytest.raises(ValueError, match="no fault flood; allowed: process, "):
        chosen_kinds(["kill", "flood"])


def test_a_seed_means_the_same_blows_in_every_release() -> None:
    """A run that found something is had again by its seed."""
    jobs, leases = ProcessRole("jobs", 3, ("a", "b", "c")), ProcessRole("leases", 2, (), uses_redis=False)
    weights = {"kill": 1, "crash": 2, "net-cut": 3, "redis-wipe": 4}
    found = schedule(7, list(weights), (jobs, leases), gap_seconds=0.5, weights=weights)

    assert [tuple(fault.facts().values()) for fault in islice(found, 12)] == [
        (1, 0.201, "redis-wipe", "jobs", 0, "b", 2, 1.29, False),
        (2, 0.213, "crash", "jobs", 0, "a", 10, 1.95, False),
        (3, 0.428, "kill", "jobs", 2, "a", 1, 1.6, False),
        (4, 0.721, "net-cut", "leases", 1, "", 1, 1.28, False),
        (5, 0.294, "redis-wipe", "jobs", 0, "b", 1, 2.23, False),
        (6, 0.639, "crash", "jobs", 1, "c", 1, 2.47, False),
        (7, 0.233, "net-cut", "leases", 0, "", 5, 2.19, False),
        (8, 0.551, "redis-wipe", "jobs", 2, "b", 2, 2.29, False),
        (9, 0.811, "net-cut", "leases", 0, "", 10, 2.27, False),
        (10, 0.349, "net-cut", "leases", 0, "", 1, 1.28, False),
        (11, 0.688, "crash", "jobs", 1, "c", 2, 1.91, False),
        (12, 0.768, "redis-wipe", "jobs", 0, "b", 10, 2.45, False),
    ]


def test_a_third_of_what_the_network_suffers_is_at_redis() -> None:
    cuts = list(islice(schedule(7, ["net-cut", "net-lost-commit"], (JOBS,), gap_seconds=1), 2000))
    either, commits = (
        [fault for fault in cuts if fault.kind == kind] for kind in ("net-cut", "net-lost-commit")
    )

    assert 0.3 < sum(fault.at_redis for fault in either) / len(either) < 0.4
    assert not any(fault.at_redis for fault in commits)


def test_what_befalls_redis_does_not_wait_for_the_rest() -> None:
    assert abreast(["kill", "redis-wipe", "net-cut"]) == [["kill", "net-cut"], ["redis-wipe"]]
    assert abreast(["kill"]) == [["kill"]]
    assert abreast([]) == []


def test_what_is_left_out_is_said() -> None:
    every = {"clocks of nodes", "PostgreSQL's own clock", "power-cut", "disk-full"}
    assert set(unavailable([])) == every
    assert set(unavailable(["power-cut"])) == every - {"power-cut"}
    assert set(unavailable(["disk-full"])) == every - {"disk-full"}
    assert set(unavailable(["node-clock-jump"])) == every - {"clocks of nodes"}
    assert set(unavailable(["postgres-clock-jump"])) == every - {"PostgreSQL's own clock"}


def test_a_kind_without_a_weight_of_its_own_comes_as_often_as_always() -> None:
    found = islice(schedule(7, ["kill", "net-cut"], (JOBS,), gap_seconds=1, weights={"kill": 0}), 2, 200)
    assert {fault.kind for fault in found} == {"net-cut"}


def test_a_system_with_a_greater_share_is_struck_as_much_more_often() -> None:
    found = islice(
        schedule(7, ["kill"], (JOBS, LEASES, ORDERS), gap_seconds=1, shares={"jobs": 6, "leases": 3}), 5000
    )
    struck = Counter(fault.system for fault in found)

    assert struck["jobs"] / struck["orders"] == pytest.approx(6, rel=0.2)
    assert struck["leases"] / struck["orders"] == pytest.approx(3, rel=0.2)

"""Every bug that the tests plant, in one list: its name, where it is planted, and the test that sees it.

Most are read from the galleries themselves; those that a test plants by its own hand stand in `by_hand`.
The page `docs/reference/planted-bugs.md` is this list.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.jobs import test_teeth as job_stories
from tests.acceptance.nonces import test_nonces_storm as nonces_storm
from tests.acceptance.torture import test_transactions as transactions
from tests.gallery.by_hand import BY_HAND
from tests.gallery.gallery import GALLERY
from tests.integration.job_features import test_schedule_releases as schedule_releases
from tests.integration.job_features import test_schedules as schedules
from tests.integration.judge import test_contest_day as contest_day
from tests.integration.judge import test_rejudging as rejudging
from tests.integration.judge import test_system_errors as system_errors
from tests.integration.judge import test_teeth as judge_teeth
from tests.integration.kernel import test_job_suspect as suspects
from tests.integration.kernel import test_job_worker as workers
from tests.integration.nonces import test_lost_nonces as lost_nonces
from tests.integration.nonces import test_policies as policies
from tests.integration.nonces import test_recovering as recovering
from tests.integration.nonces import test_wrong_forms as wrong_forms
from tests.integration.players import test_amounts as amounts
from tests.isolation import gallery as isolation
from tests.isolation.planted_bug import PlantedBug
from tests.specs.tlc import Model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "planted-bugs.md"
BY_FILE = {
    "tests/isolation/test_planted_bugs.py": "the kernel and the services, in every interleaving",
    "tests/gallery/test_gallery.py": "effects under faults: a short torture",
    "tests/acceptance/torture/test_transactions.py": "transactions on a chain, under crashes",
    "tests/acceptance/torture/test_sinks.py": "sinks that commit in phases, under crashes",
    "tests/acceptance/torture/test_judge_system.py": "the judge, under crashes",
    "tests/specs/test_specs.py": "guards of the specifications",
    "tests/acceptance/test_teeth.py": "paused holders, heartbeats and evictions",
    "tests/acceptance/test_killed_mutation.py": "keys beside their effect",
    "tests/acceptance/jobs/test_teeth.py": "the job runtime",
    "tests/acceptance/nonces/test_nonces_storm.py": "nonces under a storm",
    "tests/acceptance/nonces/test_uneven_storm.py": "transactions behind chain backends that lag",
    "tests/integration/nonces/test_lost_nonces.py": "nonces that somebody else used",
    "tests/integration/nonces/test_policies.py": "deadlines and batches of transactions",
    "tests/integration/nonces/test_wrong_forms.py": "the signer's lease",
    "tests/integration/nonces/test_recovering.py": "nonces after a restored backup",
    "tests/integration/players/test_teeth.py": "players' mutations",
    "tests/integration/players/test_model.py": "players against a model",
    "tests/integration/players/test_amounts.py": "amounts of many players at once",
    "tests/acceptance/players/test_frozen.py": "players that a frozen transaction holds",
    "tests/integration/webhooks/test_registered_webhooks.py": "webhooks",
    "tests/integration/orders/test_events.py": "events of orders",
    "tests/acceptance/orders/test_crash_points.py": "orders of workers that die or stand still",
    "tests/integration/orders/test_teeth.py": "orders at hostile brokers",
    "tests/integration/orders/test_limits.py": "limits of accounts",
    "tests/integration/orders/test_changes.py": "cancels at hostile brokers",
    "tests/integration/orders/test_change_fences.py": "changes of orders at the broker",
    "tests/integration/flows/test_teeth.py": "flows and their sinks",
    "tests/integration/flows/test_regroup.py": "flows in another number of key groups",
    "tests/unit/flows/test_time_teeth.py": "windows, joins and silences of flows",
    "tests/integration/kernel/test_job_suspect.py": "jobs of a lost worker",
    "tests/integration/kernel/test_job_worker.py": "workers that are out of service",
    "tests/integration/job_features/test_schedules.py": "schedules",
    "tests/integration/job_features/test_schedule_releases.py": "releases of schedules",
    "tests/integration/job_features/test_batches.py": "batches",
    "tests/integration/client/test_round_trip.py": "what travels with begin and with commit",
    "tests/integration/job_features/test_group_commit.py": "jobs that share a commit",
    "tests/integration/job_features/test_rates.py": "rates",
    "tests/integration/kernel/test_job_need.py": "claims of what a worker serves",
    "tests/integration/jobs/test_rolling_deploys.py": "rolling deploys",
    "tests/integration/workflows/test_zombies.py": "zombies inside a workflow's step",
    "tests/integration/workflows/test_crash_everywhere.py": "crashes at every point of a workflow",
    "tests/integration/judge/test_teeth.py": "the sandbox",
    "tests/integration/judge/test_rejudging.py": "rejudging",
    "tests/integration/judge/test_contest_day.py": "the day of a contest",
    "tests/integration/judge/test_system_errors.py": "judges that produce system errors",
}


@dataclass(frozen=True, order=True)
class Entry:
    """A bug. `test` is a node of pytest: running it plants the bug and sees it."""

    file: str
    name: str
    planted_in: str
    seen_by: str
    test: str


def _bugs(
    file: str, test: str, bugs: tuple[PlantedBug, ...], seen_by: Callable[[PlantedBug], str]
) -> Iterator[Entry]:
    for bug in bugs:
        places = dict.fromkeys([edit.function for edit in bug.edits])
        yield Entry(file, bug.title, ", ".join(places), seen_by(bug), f"{test}[{bug.title}]")


def _of_isolation() -> Iterator[Entry]:
    file = "tests/isolation/test_planted_bugs.py"
    yield from _bugs(file, "test_a_planted_bug_is_noticed", isolation.GALLERY, lambda bug: bug.noticed_by)
    yield from _bugs(
        file,
        "test_a_bug_between_two_statements_is_noticed",
        isolation.INSIDE,
        lambda bug: f"{bug.noticed_by}, stopped in the middle",
    )


def _of_torture() -> Iterator[Entry]:
    for bug in GALLERY:
        places = dict.fromkeys([edit.function for edit in bug.edits])
        yield Entry(
            "tests/gallery/test_gallery.py",
            bug.title,
            ", ".join(places) or f"the processes of {bug.system}",
            f"{bug.system} under {', '.join(bug.faults)}: {' or '.join(bug.seen_by)}",
            f"test_the_torture_finds_the_bug[{bug.title}]",
        )


def _of_specifications() -> Iterator[Entry]:
    for twin in Model.all():
        if twin.refuted is not None:
            specification, _, what = twin.name.partition(".")
            yield Entry(
                "tests/specs/test_specs.py",
                f"{what.replace('-', ' ')} ({specification})",
                f"specs/{twin.config.name}",
                f"TLC refutes {twin.refuted}",
                f"test_the_broken_twin_is_refuted[{twin.name}]",
            )


def _of_stories() -> Iterator[Entry]:
    for story, mutant, plant in job_stories.STORIES:
        assert mutant or plant is not None
        name = mutant or job_stories.name_of(plant).replace("_", " ")
        title = story.__name__
        yield Entry(
            "tests/acceptance/jobs/test_teeth.py",
            name,
            "jobs/" if mutant else "job functions",
            title.replace("_", " "),
            "test_the_story_ends_well_exactly_without_the_bug",
        )
    for tale, (file, right, _) in rejudging.STORIES.items():
        yield Entry(
            "tests/integration/judge/test_rejudging.py",
            f"without `{' '.join(right.split())}`",
            file,
            tale.__name__.replace("_", " "),
            f"test_too_late_or_too_early_replaces_nothing_and_a_planted_bug_is_noticed[{tale.__name__}]",
        )
    for name, (file, _, _, seen_by) in contest_day.BUGS.items():
        yield Entry(
            "tests/integration/judge/test_contest_day.py",
            name,
            file,
            seen_by.__name__.removeprefix("test_").replace("_", " "),
            f"test_a_planted_bug_is_seen[{name}]",
        )
    for name, (function, _, _) in suspects.BUGS.items():
        yield Entry(
            "tests/integration/kernel/test_job_suspect.py",
            name,
            function,
            "one poison among many dies and no other is charged",
            f"test_a_planted_bug_is_seen_by_that[{name}]",
        )
    for name, (function, _, _) in workers.BUGS.items():
        yield Entry(
            "tests/integration/kernel/test_job_worker.py",
            name,
            function,
            "out of service means every claim",
            f"test_a_planted_bug_is_seen_by_that[{name}]",
        )
    for name, _ in schedules.BROKEN:
        yield Entry(
            "tests/integration/job_features/test_schedules.py",
            name,
            "schedule_fire",
            "a tick that fires twice",
            f"test_a_planted_bug_fires_twice[{name}]",
        )
    for name, _ in schedule_releases.BROKEN:
        yield Entry(
            "tests/integration/job_features/test_schedule_releases.py",
            name,
            "_schedule_changes",
            "a schedule whose code is gone and which fires",
            f"test_a_planted_bug_keeps_a_schedule_whose_code_is_gone[{name}]",
        )


def _of_services() -> Iterator[Entry]:
    for name, (function, _, _) in system_errors.BUGS.items():
        yield Entry(
            "tests/integration/judge/test_system_errors.py",
            name,
            function,
            "a sick judge is taken out and no other",
            f"test_a_planted_bug_is_seen_by_that[{name}]",
        )
    for name, (file, _, _, case) in judge_teeth.MUTANTS.items():
        yield Entry(
            "tests/integration/judge/test_teeth.py",
            name,
            f"sandbox/box/{file}",
            f"the hostile program {case}",
            f"test_a_planted_bug_is_noticed[{name}]",
        )
    for title in amounts.BUGS:
        yield Entry(
            "tests/integration/players/test_amounts.py",
            title,
            "_player_execute_amounts",
            "a mutation that a batch cannot carry goes alone",
            f"test_a_planted_bug_is_noticed[{title}]",
        )
    for file, bugs in (
        ("tests/integration/nonces/test_recovering.py", recovering.BUGS),
        ("tests/integration/nonces/test_lost_nonces.py", lost_nonces.BUGS),
        ("tests/integration/nonces/test_policies.py", policies.BUGS),
    ):
        for title, edit, story in bugs:
            yield Entry(
                file,
                title,
                edit.function,
                story.__name__.removeprefix("test_").replace("_", " "),
                f"test_a_planted_bug_is_noticed[{title}]",
            )
    yield from _bugs(
        "tests/integration/nonces/test_wrong_forms.py",
        "test_it_happens_when_the_bug_is_planted",
        wrong_forms.WRONG_FORMS,
        lambda bug: bug.noticed_by.replace("_", " "),
    )
    yield from _bugs(
        "tests/acceptance/nonces/test_nonces_storm.py",
        "test_a_planted_bug_is_seen",
        nonces_storm.BUGS,
        lambda bug: f"the ledger: {bug.noticed_by}",
    )
    yield from _bugs(
        "tests/acceptance/torture/test_transactions.py",
        "test_a_planted_bug_is_seen_on_the_chain",
        transactions.BUGS,
        lambda bug: f"the blocks: {bug.noticed_by}",
    )


def _by_hand() -> Iterator[Entry]:
    for file, bugs in BY_HAND.items():
        for name, planted_in, seen_by, test in bugs:
            yield Entry(file, name, planted_in, seen_by, test)


def catalogue() -> list[Entry]:
    sources = (_of_isolation, _of_torture, _of_specifications, _of_stories, _of_services, _by_hand)
    return [entry for source in sources for entry in source()]


def page() -> str:
    """The list as people read it."""
    entries = catalogue()
    lines = [
        "# Planted bugs",
        "",
        "A test that cannot fail proves nothing. So the tests plant these bugs, each in a database or a",
        "process of its own, and each must be seen. None of them can be switched on in the product. To plant",
        "one and watch: `pytest --full FILE -k NAME`.",
        "",
        f"There are {len(entries)}. Beside them `make mutants` makes bugs by rule in every function of the",
        "kernel ([what they have shown](../guarantees.md#how-good-the-tests-are)).",
    ]
    for file, what in BY_FILE.items():
        lines += ["", f"## {what[0].upper()}{what[1:]}", "", f"`{file}`", ""]
        lines += ["| bug | planted in | seen by |", "|---|---|---|"]
        lines += [
            f"| {entry.name} | {entry.planted_in} | {entry.seen_by} |".replace("\n", " ")
            for entry in entries
            if entry.file == file
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())

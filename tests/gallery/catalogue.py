"""Every bug that the tests plant, in one list: its name, where it is planted, and the test that sees it.

Most are read from the galleries themselves; those that a test plants by its own hand are named here. The page
`docs/reference/planted-bugs.md` is this list.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.jobs import test_teeth as job_stories
from tests.acceptance.nonces import test_nonces_storm as nonces_storm
from tests.gallery.gallery import GALLERY
from tests.integration.job_features import test_schedules as schedules
from tests.integration.judge import test_rejudging as rejudging
from tests.integration.judge import test_teeth as judge_teeth
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
    "tests/specs/test_specs.py": "guards of the specifications",
    "tests/acceptance/test_teeth.py": "paused holders, heartbeats and evictions",
    "tests/acceptance/test_killed_mutation.py": "markers beside their effect",
    "tests/acceptance/jobs/test_teeth.py": "the job runtime",
    "tests/acceptance/nonces/test_nonces_storm.py": "nonces under a storm",
    "tests/integration/nonces/test_wrong_forms.py": "the signer's lease",
    "tests/integration/nonces/test_recovering.py": "nonces after a restored backup",
    "tests/integration/players/test_teeth.py": "players' mutations",
    "tests/integration/players/test_model.py": "players against a model",
    "tests/integration/players/test_amounts.py": "amounts of many players at once",
    "tests/acceptance/players/test_frozen.py": "players that a frozen transaction holds",
    "tests/integration/orders/test_teeth.py": "orders at hostile brokers",
    "tests/integration/flows/test_teeth.py": "flows and their sinks",
    "tests/integration/job_features/test_schedules.py": "schedules",
    "tests/integration/job_features/test_batches.py": "batches",
    "tests/integration/job_features/test_rates.py": "rates",
    "tests/integration/judge/test_teeth.py": "the sandbox",
    "tests/integration/judge/test_rejudging.py": "rejudging",
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
    for name, _ in schedules.BROKEN:
        yield Entry(
            "tests/integration/job_features/test_schedules.py",
            name,
            "schedule_fire",
            "a tick that fires twice",
            f"test_a_planted_bug_fires_twice[{name}]",
        )


def _of_services() -> Iterator[Entry]:
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
            "who cannot be carried goes alone",
            f"test_a_planted_bug_is_noticed[{title}]",
        )
    for title, edit, story in recovering.BUGS:
        yield Entry(
            "tests/integration/nonces/test_recovering.py",
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


# Planted by the test itself: the name, where, what sees it, and the test.
BY_HAND = {
    "tests/acceptance/test_teeth.py": [
        (
            "a fence bounds no idle time",
            "_bound_idle_time",
            "a takeover that waits for a stopped holder",
            "test_without_its_idle_time_a_fence_blocks_the_takeover",
        ),
        (
            "nobody evicts",
            "lease_evict, job_evict",
            "a takeover that waits for a holder inside COPY",
            "test_without_eviction_a_busy_holder_blocks_the_takeover",
        ),
        (
            "a fence that does not lock",
            "lease_fence",
            "a zombie that commits",
            "test_a_fence_that_does_not_lock_lets_a_zombie_commit",
        ),
        (
            "a fence of a lease that locks too much",
            "lease_fence",
            "the holder's heartbeat",
            "test_a_fence_that_locks_too_much_blocks_the_heartbeat_of_a_lease",
        ),
        (
            "a fence of a job that locks too much",
            "job_fence",
            "the holder's heartbeat",
            "test_a_fence_that_locks_too_much_blocks_the_heartbeat_of_a_job",
        ),
        (
            "a renewal of many that waits",
            "job_renew_many",
            "one open finish holds up the others",
            "test_a_renewal_that_waits_is_held_up_by_one_open_finish",
        ),
        (
            "a finish that asks the clock again",
            "_job_is_fenced",
            "fenced work that is lost",
            "test_a_finish_that_asks_the_clock_again_loses_fenced_work",
        ),
        (
            "an eviction of the direct blocker",
            "_evict",
            "fellow takers are ended",
            "test_an_eviction_that_ends_its_direct_blocker_ends_fellow_takers",
        ),
        (
            "an eviction that forgets what was seen",
            "_evict",
            "the winner is ended",
            "test_an_eviction_that_forgets_what_was_seen_ends_the_winner",
        ),
        (
            "an eviction without its grace",
            "lease_evict",
            "a holder is ended too early",
            "test_an_eviction_that_does_not_ask_for_the_grace_ends_a_holder_too_early",
        ),
    ],
    "tests/acceptance/test_killed_mutation.py": [
        (
            "the marker commits first, in a transaction of its own",
            "the caller",
            "an effect that is lost",
            "test_a_marker_in_a_transaction_of_its_own_is_caught",
        ),
        (
            "the marker commits last, in a transaction of its own",
            "the caller",
            "an effect that is doubled",
            "test_a_marker_in_a_transaction_of_its_own_is_caught",
        ),
    ],
    "tests/integration/players/test_teeth.py": [
        (
            "the marker comes after the write",
            "_player_execute, _player_lock",
            "a copy of the request doubles it",
            "test_a_marker_that_comes_after_the_write_doubles_it",
        ),
        (
            "the marker is outside of the transaction",
            "mutations/pipeline.py",
            "a crash loses the effect",
            "test_a_marker_outside_the_transaction_loses_the_effect",
        ),
        (
            "a plan is made inside the loop",
            "mutations/execution.py",
            "other dice at the second try",
            "test_a_plan_inside_the_loop_throws_other_dice",
        ),
        (
            "no digest of the request",
            "kernel/marker.py",
            "another request gets the first one's answer",
            "test_without_a_digest_another_request_gets_the_first_ones_answer",
        ),
        (
            "the locked row is not judged",
            "_player_amounts_unfit",
            "a balance below zero",
            "test_without_the_locked_rows_judgement_a_balance_falls_below_zero",
        ),
    ],
    "tests/integration/players/test_model.py": [
        (
            "what is taken is not taken",
            "_player_change_amounts",
            "random sequences against the model",
            "test_a_service_that_forgets_to_take_is_caught",
        )
    ],
    "tests/acceptance/players/test_frozen.py": [
        (
            "nobody looks who holds a player",
            "mutations/vigil.py",
            "a mutation that waits for a holder inside COPY",
            "test_without_the_looks_the_holder_blocks_the_player_and_the_request_is_aborted",
        )
    ],
    "tests/integration/orders/test_teeth.py": [
        (
            "a stuck order is rewound",
            "orders/sender.py",
            "two orders at the broker",
            "test_a_rewind_instead_of_a_question_doubles_an_order",
        ),
        (
            "a 5xx is taken for nothing done",
            "orders/outcome.py",
            "two orders at the broker",
            "test_a_planted_bug_doubles_an_order_and_the_right_code_does_not",
        ),
        (
            "absence is taken for proof",
            "orders/resend.py",
            "two orders at the broker",
            "test_a_planted_bug_doubles_an_order_and_the_right_code_does_not",
        ),
        (
            "dead behind an open request",
            "_orders_open_after",
            "an order that lives and is called dead",
            "test_dead_behind_an_open_request_would_be_a_live_order_called_dead",
        ),
    ],
    "tests/integration/flows/test_teeth.py": [
        (
            "a durable checkpoint that is not flagged is skipped",
            "flows/sinks/files.py",
            "effects that are lost",
            "test_skipping_a_durable_checkpoint_that_is_not_flagged_loses_its_effects",
        ),
        (
            "a script without its frontier",
            "flows/sinks/take.lua",
            "effects that are doubled",
            "test_a_script_without_its_frontier_check_doubles",
        ),
        (
            "acknowledged before the commit",
            "flows/task.py",
            "a source that was trimmed too far",
            "test_acknowledging_before_the_commit_is_found_when_the_flow_starts_again",
        ),
    ],
    "tests/integration/job_features/test_batches.py": [
        (
            "a batch is counted without its lock",
            "_batch_count",
            "a callback that nobody calls",
            "test_a_planted_bug_forgets_the_callback",
        )
    ],
    "tests/integration/job_features/test_rates.py": [
        (
            "a grant costs no token",
            "_rate_take",
            "more than the rate",
            "test_a_planted_bug_takes_tokens_for_nothing",
        )
    ],
}


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

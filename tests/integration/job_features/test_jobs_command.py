"""`fencepost jobs`, as a person and as a script call it."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost.jobs._worker_registry import WorkerRegistry
from fencepost.kernel import drivers, queue
from fencepost.kernel import job as kernel_job
from fencepost.kernel._job_need import Serves
from tests.integration.cli.conftest import Answer
from tests.integration.job_features.probes import Probes

OWNER = "worker-1"
Fencepost = Callable[..., Answer]


@pytest.fixture
def fencepost(subcommand: Callable[[str], Fencepost]) -> Fencepost:
    """`fencepost("list", "--json")` is `fencepost jobs list --json`, as the services' role."""
    return subcommand("jobs")


@pytest.fixture
def send(database: Database) -> Callable[..., Any]:
    def call(kernel_call: Any) -> Any:
        with database.connect() as connection:
            return drivers.run(connection, kernel_call)

    return call


Send = Callable[..., Any]


def submit(send: Send, count: int = 1, *, name: str = "mail", kind: str = "send") -> list[int]:
    return [job.job_id for job in send(kernel_job.submit_many(name, kind, [{"n": n} for n in range(count)]))]


def bury(send: Send, job_ids: list[int], error: str) -> list[int]:
    answers = send(kernel_job.claim_many(job_ids, OWNER))
    leaves = [kernel_job.Leave(a.job_id, a.running.attempt, "bury", error) for a in answers]
    send(kernel_job.leave_many(leaves, OWNER))
    return job_ids


def test_list_shows_jobs_page_by_page(fencepost: Fencepost, send: Send) -> None:
    jobs = submit(send, 5)
    first = fencepost("list", "--limit", "3", "--json").json
    assert [job["job_id"] for job in first["jobs"]] == [*reversed(jobs[2:])]
    assert first["next_before"] == jobs[2]
    rest = fencepost("list", "--limit", "3", "--before", str(first["next_before"]), "--json").json
    assert ([job["job_id"] for job in rest["jobs"]], rest["next_before"]) == ([jobs[1], jobs[0]], None)
    screen = fencepost("list", "--limit", "3", "--queue", "mail")
    assert f"More: fencepost jobs list --queue mail --limit 3 --before {jobs[2]}" in screen.out


def test_list_filters_by_state_queue_and_kind(fencepost: Fencepost, send: Send) -> None:
    [running] = submit(send)
    send(kernel_job.claim(running, OWNER))
    [other] = submit(send, name="reports", kind="report")
    [dead] = bury(send, submit(send), "ValueError: no [red]such[/red] thing")

    def listed(*options: str) -> list[int]:
        return [job["job_id"] for job in fencepost("list", *options, "--json").json["jobs"]]

    assert listed("--state", "running") == [running]
    assert listed("--queue", "reports") == [other]
    assert listed("--kind", "send", "--state", "dead") == [dead]
    screen = fencepost("list").out
    assert "dead (failed)" in screen
    assert "[red]such[/red]" in screen, "what a handler wrote is text, not markup"
    assert fencepost("list", "--queue", "none").out == "No job fits.\n"
    assert fencepost("list", "--state", "asleep").code == ExitCode.USAGE


def test_show_tells_everything_about_one(fencepost: Fencepost, send: Send) -> None:
    [job] = submit(send)
    shown = fencepost("show", str(job))
    assert shown.code == ExitCode.OK
    for expected in ('payload       {"n": 0}', "state         pending", "priority      normal"):
        assert expected in shown.out
    assert fencepost("show", str(job), "--json").json["payload"] == {"n": 0}
    missing = fencepost("show", "999999")
    assert missing.code == ExitCode.NOT_FOUND
    assert "There is no job 999999" in missing.err


def test_show_has_the_traceback_of_each_failed_try(fencepost: Fencepost, send: Send) -> None:
    [job] = submit(send)
    for number in (1, 2):
        claimed = send(kernel_job.claim(job, OWNER))
        failed = kernel_job.Leave(
            job, claimed.attempt, "retry", f"no {number}", 0, f"Traceback:\n  File {number}\x1b[31m"
        )
        send(kernel_job.leave_many([failed], OWNER))
    shown = fencepost("show", str(job))
    for number in (1, 2):
        assert f"\ntry {number} failed (attempt {number}, " in shown.out
        assert f"\n  Traceback:\n    File {number} [31m\n" in shown.out
    told = fencepost("show", str(job), "--json").json["failed_tries"]
    assert [(one["try"], one["attempt"], one["error"], one["traceback"]) for one in told] == [
        (number, number, f"no {number}", f"Traceback:\n  File {number}\x1b[31m") for number in (1, 2)
    ]


def test_cancel_says_what_came_of_each(fencepost: Fencepost, send: Send, probes: Probes) -> None:
    waiting, running = submit(send, 2)
    send(kernel_job.claim(running, OWNER))
    told = fencepost("cancel", str(waiting), str(running), "--actor", "alice")
    assert told.code == ExitCode.OK
    assert told.out.splitlines() == [
        f"job {waiting}: cancelled",
        f"job {running}: asked to stop; it ends as cancelled",
    ]
    assert probes.events("job", waiting) == [("cancelled", "alice")]
    again = fencepost("cancel", str(waiting), "--json")
    assert (again.code, again.json[0]["refused"]) == (ExitCode.PROBLEM, "cancelled")
    assert fencepost("cancel", "999999").code == ExitCode.NOT_FOUND


def test_an_actor_is_recorded_even_if_none_is_given(fencepost: Fencepost, send: Send, probes: Probes) -> None:
    [job] = submit(send)
    fencepost("cancel", str(job))
    [(_, actor)] = probes.events("job", job)
    assert actor is not None
    assert "@" in actor


def test_retry_hurries_what_waits_and_revives_what_is_dead(
    fencepost: Fencepost, send: Send, probes: Probes
) -> None:
    delayed = send(kernel_job.submit("mail", "send", {}, kernel_job.SubmitOptions(delay_seconds=3600))).job_id
    [dead] = bury(send, submit(send), "ValueError: no")
    [running] = submit(send)
    send(kernel_job.claim(running, OWNER))
    told = fencepost("retry", str(delayed), str(dead), str(running))
    assert told.code == ExitCode.PROBLEM
    assert told.out.splitlines()[:2] == [
        f"job {delayed}: is due now",
        f"job {dead}: runs again, with all its tries",
    ]
    assert probes.value("select count(*) from fencepost.job_waiting where run_at <= now()") == 2


def test_pause_and_resume_a_queue(fencepost: Fencepost, send: Send, probes: Probes) -> None:
    submit(send)
    submit(send, name="reports")
    assert fencepost("pause", "mail", "reports", "--actor", "alice").out == (
        "queue mail: paused\nqueue reports: paused\n"
    )
    assert send(kernel_job.claim_next("mail", 1, OWNER, 10)) == []
    assert fencepost("resume", "mail", "--json").json == [{"queue": "mail", "outcome": "resumed"}]
    assert len(send(kernel_job.claim_next("mail", 1, OWNER, 10))) == 1
    assert [event for event, _ in probes.events("queue", "mail")] == ["paused", "resumed"]


def test_a_queue_that_a_live_worker_serves_is_known_before_its_first_job(
    fencepost: Fencepost, database: Database
) -> None:
    registry = WorkerRegistry(OWNER, ["letters"], Serves({"send": None}), ttl_seconds=60)
    with database.connect() as connection:
        registry.keep(connection)
        assert fencepost("pause", "letters").out == "queue letters: paused\n"
        assert fencepost("pause", "reports").code == ExitCode.NOT_FOUND
        registry.leave(connection)
    assert fencepost("resume", "letters").out == "queue letters: resumed\n", "it has a setting by now"


def test_dead_groups_by_cause(fencepost: Fencepost, send: Send) -> None:
    assert fencepost("dead").out == "No dead letters.\n"
    bury(send, submit(send, 3), "SMTPException: refused")
    bury(send, submit(send, 1, name="reports"), "ValueError: no")
    causes = fencepost("dead", "--json").json
    assert [(c["queue"], c["cause"], c["jobs"]) for c in causes] == [
        ("mail", "SMTPException", 3),
        ("reports", "ValueError", 1),
    ]
    screen = fencepost("dead", "--queue", "mail").out
    assert "SMTPException: refused" in screen
    assert "ValueError" not in screen


def test_replay_by_id(fencepost: Fencepost, send: Send, probes: Probes) -> None:
    [dead] = bury(send, submit(send), "ValueError: no")
    assert fencepost("replay", str(dead), "--actor", "alice").out == f"job {dead}: replayed\n"
    assert probes.events("job", dead)[-1] == ("replayed", "alice")
    again = fencepost("replay", str(dead))
    assert (again.code, again.out) == (ExitCode.PROBLEM, f"job {dead}: not replayed: mismatch\n")
    assert fencepost("replay", "999999").code == ExitCode.NOT_FOUND


def test_replay_by_filter_and_again(fencepost: Fencepost, send: Send, probes: Probes) -> None:
    meant = bury(send, submit(send, 7), "SMTPException: refused")
    [spared] = bury(send, submit(send), "ValueError: no")
    told = fencepost("replay", "--cause", "SMTPException", "--yes", "--rate", "1000")
    assert (told.code, told.out) == (ExitCode.OK, "7 replayed\n")
    assert {probes.state(job) for job in meant} == {"pending"}
    assert probes.state(spared) == "dead"
    before = told.err.split("--before ")[1].strip().rstrip(".")
    bury(send, meant[:2], "SMTPException: again")
    answered = fencepost("replay", "--cause", "SMTPException", "--yes", "--before", before, "--json").json
    assert (answered["meant"], answered["outcomes"]) == (0, {}), "what died again died later"
    assert fencepost("replay", "--cause", "SMTPException", "--yes", "--json").json["outcomes"] == {
        "replayed": 2
    }


def test_many_at_once_are_not_touched_without_a_yes(fencepost: Fencepost, send: Send, probes: Probes) -> None:
    bury(send, submit(send, 2), "ValueError: no")
    for how in ("replay", "discard"):
        told = fencepost(how, "--all")
        assert told.code == ExitCode.USAGE
        assert "2 dead letters? Add --yes" in told.err
    assert probes.value("select count(*) from fencepost.dead_letters") == 2


@pytest.mark.parametrize("arguments", [[], ["7", "--all"], ["7", "--queue", "mail"]])
def test_either_ids_or_a_filter(fencepost: Fencepost, arguments: list[str]) -> None:
    told = fencepost("replay", *arguments)
    assert told.code == ExitCode.USAGE
    assert "Say which" in told.err


@pytest.mark.parametrize("moment", ["yesterday", "2030-01-31T12:00:00"])
def test_a_moment_needs_its_zone(fencepost: Fencepost, moment: str) -> None:
    assert fencepost("replay", "--all", "--yes", "--before", moment).code == ExitCode.USAGE


def test_discard_gives_them_up(fencepost: Fencepost, send: Send, probes: Probes) -> None:
    [one, *others] = bury(send, submit(send, 3), "ValueError: no")
    assert fencepost("discard", str(one)).out == f"job {one}: discarded\n"
    assert fencepost("discard", "--all", "--yes").out == "2 discarded\n"
    assert {probes.state(job) for job in [one, *others]} == {"cancelled"}
    assert fencepost("discard", "--all", "--yes").out == "None is dead.\n"


def test_a_viewer_may_look_and_not_decide(
    fencepost: Fencepost, database: Database, send: Send, monkeypatch: pytest.MonkeyPatch, probes: Probes
) -> None:
    [job] = submit(send)
    send(queue.pause("mail", "alice"))
    monkeypatch.setenv("DATABASE_URL", database.viewer_url)
    assert len(fencepost("list", "--json").json["jobs"]) == 1
    assert fencepost("dead").code == fencepost("show", str(job)).code == 0
    refused = fencepost("cancel", str(job))
    assert refused.code == ExitCode.PROBLEM
    assert "may not" in refused.err
    assert "Traceback" not in refused.err
    assert probes.state(job) == "pending"


@pytest.mark.parametrize(
    "command",
    ["list", "show", "cancel", "retry", "pause", "resume", "dead", "replay", "discard"],
)
def test_every_help_teaches_by_examples(fencepost: Fencepost, command: str) -> None:
    told = fencepost(command, "--help")
    assert told.code == ExitCode.OK
    assert f"fencepost jobs {command}" in told.out
    assert "Examples:" in told.out


def test_list_finds_jobs_by_tag_and_by_argument(fencepost: Fencepost, send: Send) -> None:
    labels = kernel_job.LabelTerms(("import", "big one"), ("user",))
    options = kernel_job.SubmitOptions(labels=labels)
    jobs = [
        send(kernel_job.submit("mail", "send", {"user": user}, options)).job_id for user in (7, 7, "bob", "7")
    ]
    submit(send)

    def listed(*terms: str) -> list[int]:
        return [job["job_id"] for job in fencepost("list", *terms, "--json").json["jobs"]]

    assert listed("--tag", "import") == [*reversed(jobs)]
    assert listed("--tag", "import", "--tag", "big one", "--arg", "user=7") == [jobs[1], jobs[0]]
    assert listed("--arg", "user=bob") == [jobs[2]]
    assert listed("--arg", 'user="7"') == [jobs[3]]
    assert listed("--tag", "other") == []
    more = fencepost("list", "--tag", "big one", "--arg", "user=7", "--limit", "1").out
    assert f"--tag 'big one' --arg user=7 --limit 1 --before {jobs[1]}" in " ".join(more.split())
    assert fencepost("show", str(jobs[0]), "--json").json["tags"] == ["big one", "import"]


def test_list_says_which_argument_is_not_searched(fencepost: Fencepost, send: Send) -> None:
    submit(send)
    refused = fencepost("list", "--arg", "n=0")
    assert refused.code != 0
    assert "No job can be found by its argument n" in refused.err
    unnamed = fencepost("list", "--arg", "user")
    assert unnamed.code == ExitCode.USAGE
    assert "write NAME=VALUE" in unnamed.err

"""`fencepost schedules`, as a person and as a script call it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from tests.integration.cli.conftest import Answer
from tests.integration.job_features.probes import Probes

Command = Callable[..., Answer]
EXTRA = ("add", "extra", "0 3 * * *", "--kind", "report", "--queue", "reports")


@pytest.fixture
def fencepost(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """`fencepost("list", "--json")` is `fencepost schedules list --json`, as the services' role."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", database.url)

    def call(*arguments: str) -> Answer:
        code = run(["schedules", *arguments])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call


def test_a_schedule_is_added_shown_changed_and_removed(fencepost: Command, probes: Probes) -> None:
    assert "No schedules" in fencepost("list").out
    added = fencepost(*EXTRA, "--zone", "Europe/Berlin", "--arguments", '{"scope": "eu"}', "--actor", "alice")
    assert (added.code, added.out.partition(";")[0]) == (ExitCode.OK, "schedule extra: added")
    [shown] = fencepost("list", "--json").json
    assert (shown["expression"], shown["zone"], shown["payload"]) == (
        "0 3 * * *",
        "Europe/Berlin",
        {"scope": "eu"},
    )
    assert (shown["state"], shown["origin"], shown["changed_by"]) == ("active", "run time", "alice")

    assert fencepost(*EXTRA).code == ExitCode.PROBLEM, "there is one already"
    assert fencepost("change", "extra", "--when", "every 90s", "--missed", "skip").code == ExitCode.OK
    [shown] = fencepost("list", "--json").json
    assert (shown["expression"], shown["missed"], shown["zone"]) == ("every 90s", "skip", "Europe/Berlin")

    assert fencepost("remove", "extra").out == "schedule extra: removed\n"
    assert fencepost("list", "--json").json == []
    assert [event for event, _ in probes.events("schedule", "extra")] == ["added", "changed", "removed"]


def test_run_submits_now_and_show_has_the_history(fencepost: Command, probes: Probes) -> None:
    fencepost(*EXTRA)
    ran = fencepost("run", "extra", "--actor", "alice", "--json").json
    job_id = probes.value("select job_id from fencepost.job")
    assert ran == [{"schedule": "extra", "outcome": f"job {job_id}"}]
    shown = fencepost("show", "extra", "--json").json
    assert [(one["job_id"], one["actor"], one["state"]) for one in shown["jobs"]] == [
        (job_id, "alice", "pending")
    ]
    assert "alice" in fencepost("show", "extra").out


def test_schedules_are_paused_and_resumed(fencepost: Command) -> None:
    fencepost(*EXTRA)
    told = fencepost("pause", "extra", "--actor", "alice")
    assert (told.code, told.out) == (ExitCode.OK, "schedule extra: paused\n")
    assert "paused by alice" in fencepost("list").out
    assert fencepost("resume", "extra").code == ExitCode.OK
    assert fencepost("list", "--json").json[0]["state"] == "active"


def test_a_retired_schedule_is_shown_and_revived(fencepost: Command, probes: Probes) -> None:
    fencepost(*EXTRA)
    probes.plant("update fencepost.job_schedule set retired_at = now(), release = 'gone', changes = null")
    assert "retired: no worker declares it" in fencepost("list").out
    assert fencepost("reset", "extra").code == ExitCode.PROBLEM
    assert fencepost("revive", "extra").out == "schedule extra: revived\n"
    assert fencepost("list", "--json").json[0]["state"] == "active"


def test_a_schedule_of_live_code_says_what_to_do_instead_of_removing_it(
    fencepost: Command, probes: Probes
) -> None:
    fencepost(*EXTRA)
    probes.plant(
        "insert into fencepost.job_schedule_release (release, schedules, first_at, live_until)"
        " select 'r1', jsonb_build_object('extra', '{}'::jsonb), now(), now() + interval '1 hour'"
    )
    told = fencepost("remove", "extra")
    assert told.code == ExitCode.PROBLEM
    assert "Pause it, or remove it from their code" in told.out


@pytest.mark.parametrize("act", ["show", "change", "reset", "remove", "revive", "run", "pause", "resume"])
def test_what_is_not_there_is_not_found(fencepost: Command, act: str) -> None:
    assert (
        fencepost(act, "none", *(["--missed", "all"] if act == "change" else [])).code == ExitCode.NOT_FOUND
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("add", "x", "61 * * * *", "--kind", "k", "--queue", "q"), ExitCode.PROBLEM),
        ((*EXTRA, "--arguments", "{"), ExitCode.USAGE),
        ((*EXTRA, "--arguments", "[1]"), ExitCode.USAGE),
    ],
)
def test_what_cannot_fire_is_refused(
    fencepost: Command, probes: Probes, arguments: tuple[str, ...], code: ExitCode
) -> None:
    told = fencepost(*arguments)
    assert (told.code, "Traceback" in told.err) == (code, False)
    assert probes.value("select count(*) from fencepost.job_schedule") == 0


def test_a_viewer_may_look_and_not_decide(
    fencepost: Command, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fencepost(*EXTRA)
    monkeypatch.setenv("DATABASE_URL", database.viewer_url)
    assert fencepost("list").code == fencepost("show", "extra").code == ExitCode.OK
    refused = fencepost("pause", "extra")
    assert (refused.code, "Traceback" in refused.err) == (ExitCode.PROBLEM, False)


@pytest.mark.parametrize(
    "command",
    ["list", "show", "add", "change", "reset", "remove", "revive", "run", "pause", "resume"],
)
def test_every_help_teaches_by_examples(fencepost: Command, command: str) -> None:
    told = fencepost(command, "--help")
    assert told.code == ExitCode.OK
    assert f"fencepost schedules {command}" in told.out
    assert "Examples:" in told.out

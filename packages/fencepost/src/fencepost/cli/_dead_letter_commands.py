"""Replaying and discarding dead letters from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from fencepost.cli import job_commands
from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import answer, answer_json, remark
from fencepost.kernel import dead_letter, schedule
from fencepost.kernel.drivers import run

DONE = {"replay": "replayed", "discard": "discarded"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The dead letters that the command line selects: by id, or by filter."""

    job_ids: Sequence[int]
    queue: str | None
    kind: str | None
    cause: str | None
    before: str | None
    everything: bool

    @property
    def is_filter(self) -> bool:
        return self.everything or any((self.queue, self.kind, self.cause, self.before))


def settle(
    how: dead_letter.Settling,
    chosen: Chosen,
    *,
    per_second: float,
    yes: bool,
    actor: str | None,
    as_json: bool,
) -> None:
    if bool(chosen.job_ids) == chosen.is_filter:
        raise UserError(
            f"Say which: `fencepost jobs {how} 7`, or a filter (--queue, --kind, --cause, --before), or "
            "--all.",
            ExitCode.USAGE,
        )
    if chosen.job_ids:
        _settle_some(how, chosen.job_ids, actor, as_json=as_json)
    else:
        _settle_many(how, chosen, per_second=per_second, yes=yes, actor=actor, as_json=as_json)


def _settle_some(
    how: dead_letter.Settling, job_ids: Sequence[int], actor: str | None, *, as_json: bool
) -> None:
    """Settle the given ids. Exits with 4 when ids were not found, with 1 when one was refused."""
    with job_commands.acting() as connection:
        settled = job_commands.settle_ids(connection, job_ids, how, job_commands.actor_name(actor))
    if as_json:
        answer_json([{"job": one.job_id, "outcome": one.outcome} for one in settled])
    else:
        answer("\n".join(f"job {one.job_id}: {_told(one.outcome, how)}" for one in settled))
    outcomes = {one.outcome for one in settled} - {DONE[how]}
    if outcomes:
        raise typer.Exit(ExitCode.NOT_FOUND if outcomes == {"not_found"} else ExitCode.PROBLEM)


def _settle_many(
    how: dead_letter.Settling,
    chosen: Chosen,
    *,
    per_second: float,
    yes: bool,
    actor: str | None,
    as_json: bool,
) -> None:
    """Settle what the filter matches among jobs that died before --before, or before now without it."""
    until = job_commands.moment(chosen.before)
    with job_commands.acting() as connection:
        until = until or run(connection, schedule.clock())
        wanted = dead_letter.Filter(chosen.queue, chosen.kind, chosen.cause, until)
        total = run(connection, dead_letter.count(wanted))
        if total:
            job_commands.confirm(f"{how.capitalize()} {total} dead letters?", yes=yes)
        with job_commands.bar(how, total) as advance:
            counts = job_commands.settle_dead(
                connection,
                wanted,
                how,
                job_commands.actor_name(actor),
                per_second=per_second,
                advance=advance,
            )
    if as_json:
        answer_json({"before": until, "meant": total, "outcomes": dict(counts)})
        return
    answer(
        "\n".join(f"{number} {_told(outcome, how)}" for outcome, number in counts.items()) or "None is dead."
    )
    if total:
        remark(f"To continue, or to make sure, repeat it with --before {until.isoformat()}.")


def _told(outcome: str, how: dead_letter.Settling) -> str:
    return outcome if outcome == DONE[how] else f"not {DONE[how]}: {outcome}"

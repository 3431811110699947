"""The history of one subject (a job, lease, request or message), as the kernel records it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from psycopg.rows import class_row

from fencepost.cli._durations import span
from fencepost.cli._status_snapshot import Reason, read_reasons
from fencepost.cli.database_reader import Reader
from fencepost.cli.exit_codes import ExitCode, UserError

REFUSED = "refused:"
KINDS = {
    "job": "job:123, or just 123",
    "lease": "lease:RESOURCE",
    "request": "request:SCOPE/KEY",
    "outbox": "outbox:ID",
    "order": "order:KEY, or order:ID",
    "queue": "queue:NAME",
    "checkpoint": "checkpoint:RESOURCE",
    "worker": "worker:HOST, or worker:NAME@HOST",
    "schedule": "schedule:NAME",
    "webhook": "webhook:NAME",
    "kernel": "kernel:recovery, or kernel:lineage",
}
_NUMBERED = {"job", "outbox"}


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    at: datetime
    event: str
    actor: str | None
    token: int | None
    detail: Mapping[str, Any]

    @property
    def reason(self) -> str | None:
        """The reason, when this is a refusal."""
        return self.event.removeprefix(REFUSED) if self.event.startswith(REFUSED) else None


def subject_of(text: str) -> str:
    """The subject's full name: `123` is `job:123`. Rejects other text, with the allowed forms."""
    if text.isdecimal():
        return f"job:{text}"
    kind, colon, name = text.partition(":")
    if not colon or not name or kind not in KINDS or (kind in _NUMBERED and not name.isdecimal()):
        forms = "; ".join(KINDS.values())
        raise UserError(f"{text!r} is not something that can be explained. Write {forms}.", ExitCode.USAGE)
    return text


def read_timeline(connection: Reader, subject: str) -> tuple[TimelineEntry, ...]:
    with connection.cursor(row_factory=class_row(TimelineEntry)) as cursor:
        moments = cursor.execute(
            "select at, event, actor, token, detail from fencepost.explain(%s)", (subject,)
        ).fetchall()
    if not moments:
        raise UserError(
            f"There is no {subject}: it never existed, or it was pruned with its history.", ExitCode.NOT_FOUND
        )
    return tuple(moments)


def read_remedies(connection: Reader, moments: Sequence[TimelineEntry]) -> Mapping[str, Reason]:
    """Meaning and remedy of the reasons that occur; no query when nothing was refused."""
    given = {moment.reason for moment in moments} - {None}
    return {r.reason: r for r in read_reasons(connection) if r.reason in given} if given else {}


def as_json(subject: str, moments: Sequence[TimelineEntry], remedies: Mapping[str, Reason]) -> dict[str, Any]:
    return {"subject": subject, "moments": [_moment_json(moment, remedies) for moment in moments]}


def as_lines(subject: str, moments: Sequence[TimelineEntry], remedies: Mapping[str, Reason]) -> Iterator[str]:
    """One line per entry, with the time since the previous one; below a refusal, its meaning and remedy."""
    yield subject
    width = max(len(moment.event) for moment in moments)
    previous = moments[0].at
    for moment in moments:
        since = "" if moment is moments[0] else f"+{span((moment.at - previous).total_seconds())}"
        previous = moment.at
        yield f"  {_clock(moment.at)}  {since:>10}  {moment.event:<{width}}  {_facts(moment)}".rstrip()
        below = (*_about_refusal(moment, remedies), *_traceback(moment))
        yield from (f"  {'':>35}  {line}" for line in below)


def _about_refusal(moment: TimelineEntry, remedies: Mapping[str, Reason]) -> Iterator[str]:
    if reason := remedies.get(moment.reason or ""):
        yield f"  {reason.meaning} {reason.remedy}"
    for part in ("attempted", "seen"):
        if _is_mapping(facts := moment.detail.get(part)) and facts:
            yield f"  {part}: {_pairs(facts)}"


def _traceback(moment: TimelineEntry) -> Iterator[str]:
    text = str(moment.detail.get("traceback") or "").rstrip()
    yield from (_plain(line) for line in text.split("\n") if line)


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"


def _facts(moment: TimelineEntry) -> str:
    told_below = {"traceback", *(("attempted", "seen") if moment.reason else ())}
    detail = {name: value for name, value in moment.detail.items() if name not in told_below}
    return _pairs({"token": moment.token, "by": moment.actor, **detail})


def _pairs(facts: Mapping[str, Any]) -> str:
    return "  ".join(
        f"{name}={_plain(value)}" for name, value in facts.items() if value not in (None, {}, [])
    )


def _plain(value: Any) -> str:
    # Text from workers and clients is shown on one line and cannot move the cursor.
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text)


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _moment_json(moment: TimelineEntry, remedies: Mapping[str, Reason]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "at": moment.at.isoformat(),
        "event": moment.event,
        "actor": moment.actor,
        "token": moment.token,
        "detail": moment.detail,
    }
    if reason := remedies.get(moment.reason or ""):
        shown |= {"reason": reason.reason, "meaning": reason.meaning, "remedy": reason.remedy}
    return shown

"""Calls about teams, organizations and groups, implemented by `functions/judge_team.sql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from fencepost.kernel.call import Call, document, each, nothing, parsed, text
from fencepost_judge._scoreboard import Entrant, TeamKind


@dataclass(frozen=True, slots=True)
class Organization:
    id: str
    name: str
    formal_name: str | None = None
    country: str | None = None
    icpc_id: str | None = None


@dataclass(frozen=True, slots=True)
class TeamGroup:
    id: str
    name: str
    kind: TeamKind = TeamKind.PARTICIPANTS
    type: str | None = None
    icpc_id: str | None = None


@dataclass(frozen=True, slots=True)
class Team:
    id: str
    name: str
    label: str | None = None
    display_name: str | None = None
    organization: str | None = None
    icpc_id: str | None = None
    location: str | None = None
    members: Sequence[str] = ()
    groups: Sequence[str] = ()
    kind: TeamKind = TeamKind.PARTICIPANTS
    """As read: the strictest kind of its groups. As written, only HIDDEN counts."""

    @property
    def entrant(self) -> Entrant:
        shown = self.display_name or self.name
        return Entrant(self.id, shown, self.kind, self.organization, tuple(self.groups))


@dataclass(frozen=True, slots=True)
class TeamAccount:
    name: str
    team: str


@dataclass(frozen=True, slots=True)
class JudgedSubmission:
    """A submission into a contest, with its standing result if there is one."""

    job_id: int
    team: str
    slug: str
    language: str
    submitted_at: datetime
    generation: int | None = None
    verdict: str | None = None
    score: float | None = None
    time_ms: int | None = None
    cases: Sequence[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    started_at: datetime | None = None
    judged_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    slug: str
    label: str
    ordinal: int
    title: str
    color: str | None
    rgb: str | None
    time_ms: int
    memory_kb: int
    tests: int
    scoring: bool


@dataclass(frozen=True, slots=True)
class Sources:
    team: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FeedRow:
    """One change: `seq` is None when there is none after the number asked for. `head` is the last number."""

    seq: int | None
    type: str | None
    id: str | None
    head: int


def put_teams(
    contest: str,
    actor: str,
    *,
    organizations: Sequence[Organization] = (),
    groups: Sequence[TeamGroup] = (),
    teams: Sequence[Team] = (),
) -> Call[None]:
    """Add or change them; those that are not named stay."""
    return Call(
        "select fencepost.judge_teams_put(%s::text, %s::jsonb, %s::jsonb, %s::jsonb, %s::text)",
        (
            text("contest", contest),
            document("organizations", [asdict(one) for one in organizations]),
            document("groups", [asdict(one) for one in groups]),
            document("teams", [{**asdict(one), "hidden": one.kind is TeamKind.HIDDEN} for one in teams]),
            text("actor", actor),
        ),
        nothing,
    )


def put_account(contest: str, name: str, team: str) -> Call[None]:
    """Let a user act for a team."""
    return Call(
        "select fencepost.judge_team_account(%s::text, %s::text, %s::text)",
        (text("contest", contest), text("name", name), text("team", team)),
        nothing,
    )


def teams(contest: str, ids: Sequence[str] | None = None) -> Call[list[Team]]:
    return Call(
        "select id, name, label, display_name, organization, icpc_id, location, members, groups, kind"
        " from fencepost.judge_teams(%s::text, %s::text[])",
        (text("contest", contest), _ids(ids)),
        each(_team),
    )


def groups(contest: str, ids: Sequence[str] | None = None) -> Call[list[TeamGroup]]:
    return Call(
        "select id, name, kind, type, icpc_id from fencepost.judge_groups(%s::text, %s::text[])",
        (text("contest", contest), _ids(ids)),
        each(_group),
    )


def organizations(contest: str, ids: Sequence[str] | None = None) -> Call[list[Organization]]:
    return Call(
        "select id, name, formal_name, country, icpc_id"
        " from fencepost.judge_organizations(%s::text, %s::text[])",
        (text("contest", contest), _ids(ids)),
        each(Organization),
    )


def accounts(contest: str, ids: Sequence[str] | None = None) -> Call[list[TeamAccount]]:
    return Call(
        "select name, team from fencepost.judge_team_accounts(%s::text, %s::text[])",
        (text("contest", contest), _ids(ids)),
        each(TeamAccount),
    )


def submissions(contest: str, ids: Sequence[int] | None = None) -> Call[list[JudgedSubmission]]:
    return Call(
        "select job_id, team, slug, language, submitted_at, generation, verdict, score, time_ms, cases::text,"
        " started_at, judged_at from fencepost.judge_contest_submissions(%s::text, %s::bigint[])",
        (text("contest", contest), None if ids is None else list(ids)),
        each(_submission),
    )


def sources(contest: str, job_id: int) -> Call[list[Sources]]:
    return Call(
        "select team, sources::text from fencepost.judge_contest_sources(%s::text, %s::bigint)",
        (text("contest", contest), job_id),
        each(_sources),
    )


def problems(contest: str, slugs: Sequence[str] | None = None) -> Call[list[ProblemFacts]]:
    return Call(
        "select slug, label, ordinal, title, color, rgb, time_ms, memory_kb, tests, scoring"
        " from fencepost.judge_contest_problems(%s::text, %s::text[])",
        (text("contest", contest), _ids(slugs)),
        each(ProblemFacts),
    )


def feed(contest: str, after: int, limit: int) -> Call[list[FeedRow]]:
    return Call(
        "select seq, type, id, head from fencepost.judge_feed_read(%s::text, %s::bigint, %s::integer)",
        (text("contest", contest), after, limit),
        each(FeedRow),
    )


def _ids(ids: Sequence[str] | None) -> list[str] | None:
    return None if ids is None else [text("id", one) for one in ids]


def _team(*row: Any) -> Team:
    found = Team(*row)
    return replace(found, kind=TeamKind(found.kind))


def _group(id: str, name: str, kind: str, type: str | None, icpc_id: str | None) -> TeamGroup:  # noqa: A002
    return TeamGroup(id, name, TeamKind(kind), type, icpc_id)


def _submission(*row: Any) -> JudgedSubmission:
    found = JudgedSubmission(*row)
    return replace(found, cases=parsed(cast("str | None", found.cases)) or [])


def _sources(team: str, files: str) -> Sources:
    return Sources(team, parsed(files))

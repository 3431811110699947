"""Reads the files in which administrators keep contests and teams: `contest.yaml`, `problemset.yaml`, and
groups, organizations, teams and accounts in JSON, YAML or TSV, with the names of the Contest API and of
DOMjudge. Pure: text in, values out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any, cast

from fencepost.errors import InvalidInput
from fencepost.strict_yaml import load_yaml
from fencepost_judge._role import JudgeRole
from fencepost_judge._scoreboard import Contest, ContestProblem, Scoring, TeamKind
from fencepost_judge._teams import Organization, Team, TeamGroup

ROLES = {
    "team": JudgeRole.CONTESTANT,
    "judge": JudgeRole.JURY,
    "jury": JudgeRole.JURY,
    "analyst": JudgeRole.JURY,
    "staff": JudgeRole.JURY,
    "admin": JudgeRole.ADMIN,
}
_SPAN = re.compile(r"^(\d+):(\d{2})(?::(\d{2})(?:\.\d+)?)?$")
_BARE_SPAN = re.compile(r"(?m)^(\s*[\w-]+:\s+)(\d+(?::\d{2}){1,2}(?:\.\d+)?)(?=\s*$)")
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ImportedAccount:
    username: str
    role: JudgeRole
    password: str | None = None
    team: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What files say together. What is None or empty was in none of them."""

    contest: Contest | None = None
    problems: Sequence[ContestProblem] | None = None
    organizations: Sequence[Organization] = ()
    groups: Sequence[TeamGroup] = ()
    teams: Sequence[Team] = ()
    accounts: Sequence[ImportedAccount] = ()
    notes: Sequence[str] = field(default_factory=list[str])


def read_files(texts: Mapping[str, str], slug: str) -> Imported:
    """Read files by name: what each holds is told by its name without the ending."""
    found = Imported()
    for name, text in texts.items():
        try:
            found = _add(found, name, text, slug)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}", field="files") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise InvalidInput(f"{name}: {why}", field="files") from None
    if found.contest is not None and found.problems is not None:
        found = replace(found, contest=replace(found.contest, problems=found.problems))
    return found


def _add(found: Imported, name: str, text: str, slug: str) -> Imported:
    path = PurePath(name)
    kind, ending = path.stem.lower(), path.suffix.lower()
    if ending not in (".json", ".yaml", ".yml", ".tsv"):
        raise InvalidInput("a file of this ending is not read; there is .json, .yaml and .tsv")
    if ending == ".tsv":
        reader = _TSV.get(kind)
        if reader is None:
            raise InvalidInput(f"no TSV file has this name; there is {', '.join(sorted(_TSV))}")
        return reader(found, [line.split("\t") for line in text.splitlines() if line.strip()])
    # A bare 5:00:00 is a number in base 60 to YAML 1.1; in these files it is a length of time.
    document: Any = json.loads(text) if ending == ".json" else load_yaml(_BARE_SPAN.sub(r'\1"\2"', text))
    reader_of = _DOCUMENTS.get(kind)
    if reader_of is None:
        raise InvalidInput(f"the name says nothing; there is {', '.join(sorted(_DOCUMENTS))}")
    return reader_of(found, document, slug)


def _read_contest(found: Imported, document: Entry, slug: str) -> Imported:
    return _with_problems(replace(found, contest=_contest(document, slug)), document.get("problems"))


def _read_problems(found: Imported, document: Entry | Sequence[Entry], _: str) -> Imported:
    entries = document["problems"] if isinstance(document, Mapping) else document
    return _with_problems(found, entries)


def _read_groups(found: Imported, document: Sequence[Entry], _: str) -> Imported:
    return replace(found, groups=[_group(one) for one in document])


def _read_organizations(found: Imported, document: Sequence[Entry], _: str) -> Imported:
    return replace(found, organizations=[_organization(one) for one in document])


def _read_teams(found: Imported, document: Sequence[Entry], _: str) -> Imported:
    return replace(found, teams=[_team(one) for one in document])


def _read_accounts(found: Imported, document: Sequence[Entry], _: str) -> Imported:
    return replace(found, accounts=[_account(one) for one in document])


_DOCUMENTS: Mapping[str, Callable[[Imported, Any, str], Imported]] = {
    "contest": _read_contest,
    "problemset": _read_problems,
    "problems": _read_problems,
    "groups": _read_groups,
    "organizations": _read_organizations,
    "affiliations": _read_organizations,
    "teams": _read_teams,
    "accounts": _read_accounts,
}


def _with_problems(found: Imported, entries: Sequence[Entry] | None) -> Imported:
    if entries is None:
        return found
    problems = [_problem(one, place) for place, one in enumerate(entries)]
    return replace(found, problems=problems)


def _contest(document: Entry, slug: str) -> Contest:
    def given(*names: str) -> Any:
        return next((document[name] for name in names if document.get(name) is not None), None)

    starts_at = _moment(given("start_time", "start-time", "activate-time"))
    if starts_at is None:
        raise InvalidInput("start_time is missing")
    length = _span(given("duration"))
    if length is None:
        raise InvalidInput("duration is missing")
    ends_at = starts_at + length
    frozen = _span(
        given("scoreboard_freeze_duration", "scoreboard-freeze-duration", "scoreboard-freeze-length")
    )
    freezes_at = given("scoreboard-freeze", "freeze_time")
    freeze_at = ends_at - frozen if frozen is not None else None
    if freeze_at is None and freezes_at is not None:
        relative = _span(freezes_at)
        freeze_at = starts_at + relative if relative is not None else _moment(freezes_at)
    penalty = given("penalty_time", "penalty-time", "penalty")
    kind = given("scoreboard_type", "scoreboard-type") or "pass-fail"
    return Contest(
        slug=slug,
        title=str(given("formal_name", "formal-name", "name") or slug),
        scoring=Scoring.IOI if kind == "score" else Scoring.ICPC,
        starts_at=starts_at,
        ends_at=ends_at,
        freeze_at=freeze_at,
        penalty_minutes=20 if penalty is None else _minutes(penalty),
    )


def _minutes(value: Any) -> int:
    """A number of minutes; newer versions of the specification write a length of time."""
    length = _span(value) if isinstance(value, str) and ":" in value else None
    return int(value) if length is None else round(length / timedelta(minutes=1))


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    text = value.isoformat() if isinstance(value, datetime) else str(value).strip()
    # An offset of hours alone, as the specification allows it.
    text = re.sub(r"([+-]\d{2})$", r"\1:00", text)
    given = datetime.fromisoformat(text)
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def _span(value: Any) -> timedelta | None:
    if value is None:
        return None
    found = _SPAN.match(str(value).strip())
    if found is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _problem(one: Entry, place: int) -> ContestProblem:
    label = one.get("label") or one.get("letter") or chr(ord("A") + place)
    slug = one.get("id") or one.get("short-name") or one.get("short_name") or one.get("shortname")
    if slug is None:
        raise InvalidInput(f"the problem {label} has no id")
    return ContestProblem(str(label), str(slug).lower(), one.get("color"), one.get("rgb"))


def _group(one: Entry) -> TeamGroup:
    kind = TeamKind.HIDDEN if one.get("hidden") else TeamKind(one.get("kind") or "participants")
    # DOMjudge ranks by the order first: what does not compete has a higher one.
    if kind is TeamKind.PARTICIPANTS and one.get("sortorder"):
        kind = TeamKind.OBSERVERS
    return TeamGroup(str(one["id"]), str(one["name"]), kind, one.get("type"), _text(one.get("icpc_id")))


def _organization(one: Entry) -> Organization:
    short = one.get("name") or one.get("shortname") or one.get("short_name") or one.get("short-name")
    formal = one.get("formal_name") or one.get("formal-name")
    if short is None and formal is None:
        raise InvalidInput(f"the organization {one['id']} has no name")
    country = one.get("country")
    return Organization(str(one["id"]), str(short or formal), formal, country, _text(one.get("icpc_id")))


def _team(one: Entry) -> Team:
    place = one.get("location")
    given: Any = one.get("members") or ()
    lines = re.split(r"[\n,]", given) if isinstance(given, str) else ()
    members: Sequence[Any] = [line for line in lines if line.strip()] if isinstance(given, str) else given
    return Team(
        id=str(one["id"]),
        name=str(one["name"]),
        label=_text(one.get("label")),
        display_name=_text(one.get("display_name")),
        organization=_text(one.get("organization_id")),
        icpc_id=_text(one.get("icpc_id")),
        location=_text(_named(place, "description")),
        members=[str(_named(member, "name")).strip() for member in members],
        groups=[str(group) for group in one.get("group_ids") or ()],
        kind=TeamKind.HIDDEN if one.get("hidden") else TeamKind.PARTICIPANTS,
    )


def _account(one: Entry) -> ImportedAccount:
    kind = str(one.get("type") or "team")
    if kind not in ROLES:
        raise InvalidInput(f"the account {one['username']} is of an unknown type {kind!r}")
    team = _text(one.get("team_id"))
    return ImportedAccount(str(one["username"]), ROLES[kind], _text(one.get("password")), team)


def _named(value: Any, key: str) -> Any:
    """A value, or what an object says under the key."""
    return cast("Entry", value).get(key) if isinstance(value, Mapping) else value


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _without_head(rows: Sequence[Sequence[str]], *heads: str) -> Sequence[Sequence[str]]:
    """Without the first line, which names the format and its version."""
    if not rows or rows[0][0].lower() not in heads:
        raise InvalidInput(f"the first line is not {' or '.join(heads)} and a version")
    return rows[1:]


def _tsv_groups(found: Imported, rows: Sequence[Sequence[str]]) -> Imported:
    named = _without_head(rows, "groups", "file_version")
    return replace(found, groups=[TeamGroup(row[0].strip(), row[1].strip()) for row in named])


def _tsv_teams(found: Imported, rows: Sequence[Sequence[str]]) -> Imported:
    """Id, external id, group, name, institution, its short name, country, and its id."""
    teams: list[Team] = []
    organizations = {one.id: one for one in found.organizations}
    for row in _without_head(rows, "teams", "teams2", "file_version"):
        one = [*(value.strip() for value in row), *[""] * 8]
        short = one[5] or one[4]
        key = one[7] or re.sub(r"[^A-Za-z0-9_-]+", "-", short).strip("-")[:36]
        if key:
            country = one[6] if re.fullmatch("[A-Z]{3}", one[6]) else None
            organizations[key] = Organization(key, short or key, one[4] or None, country)
        teams.append(
            Team(
                id=one[0] or one[1],
                name=one[3],
                icpc_id=one[1] or None,
                organization=key or None,
                groups=[one[2]] if one[2] else [],
            )
        )
    return replace(found, teams=teams, organizations=list(organizations.values()))


def _tsv_organizations(found: Imported, rows: Sequence[Sequence[str]]) -> Imported:
    named = _without_head(rows, "organizations", "institutions", "file_version")
    organizations = [
        Organization(row[0].strip(), row[1].strip(), *(value.strip() or None for value in row[2:4]))
        for row in named
    ]
    return replace(found, organizations=organizations)


def _tsv_accounts(found: Imported, rows: Sequence[Sequence[str]]) -> Imported:
    """Type, full name, user name and password. The team of `team-007` is the one with the id 7."""
    accounts: list[ImportedAccount] = []
    for row in _without_head(rows, "accounts", "file_version"):
        kind, _, username, password = (value.strip() for value in row[:4])
        if kind not in ROLES:
            raise InvalidInput(f"the account {username} is of an unknown type {kind!r}")
        number = re.search(r"(\d+)$", username)
        team = number[1].lstrip("0") if kind == "team" and number else None
        accounts.append(ImportedAccount(username, ROLES[kind], password or None, team))
    return replace(found, accounts=accounts)


_TSV: Mapping[str, Callable[[Imported, Sequence[Sequence[str]]], Imported]] = {
    "groups": _tsv_groups,
    "teams": _tsv_teams,
    "teams2": _tsv_teams,
    "organizations": _tsv_organizations,
    "accounts": _tsv_accounts,
}

"""Reads the objects of a contest, as one viewer may see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fencepost.errors import NotFound
from fencepost_judge import _contests as contests
from fencepost_judge import _teams as teams
from fencepost_judge import _visibility as visibility
from fencepost_judge._language import read_specs
from fencepost_judge._scoreboard import ScoreboardRow, TeamKind, scoreboard
from fencepost_judge._service import Judging
from fencepost_judge._teams import JudgedSubmission
from fencepost_judge.ccs import _documents as documents
from fencepost_judge.ccs._documents import Document
from fencepost_judge.ccs._viewer import Sight, Viewer, kinds_of

COLLECTIONS = (
    "judgement-types",
    "languages",
    "problems",
    "groups",
    "organizations",
    "teams",
    "persons",
    "accounts",
    "submissions",
    "judgements",
    "runs",
    "clarifications",
    "awards",
)
"""In an order in which each refers only to those before it."""


class Absent(Enum):
    GONE = "gone"
    HIDDEN = "hidden"  # It may be there, and this viewer may not know.


Keys = Sequence[str] | None
"""The ids asked for; None for all."""
Keyed = tuple[str, Document | Absent]


@dataclass(frozen=True, slots=True)
class ContestObjects:
    """One contest in the eyes of one viewer, at the moment at which `sight` was taken."""

    judging: Judging
    sight: Sight
    hidden_groups: Collection[str]

    @classmethod
    async def open(cls, judging: Judging, viewer: Viewer, contest: str) -> ContestObjects:
        """Raises NotFound when the viewer may not see the contest."""
        found = await visibility.contest(judging.fp, contest)
        if viewer.name is None and not viewer.is_jury and not found.contest.is_public:
            raise visibility.no_contest(contest)
        if viewer.name is not None:
            team = await judging.fp.run(contests.team_of(contest, viewer.name))
            viewer = Viewer(viewer.name, viewer.is_jury, viewer.is_admin, team)
        known = await judging.fp.run(teams.teams(contest))
        kinds = kinds_of(known)
        groups = await judging.fp.run(teams.groups(contest))
        hidden = {one.id for one in groups if one.kind is TeamKind.HIDDEN}
        return cls(judging, Sight(viewer, found.contest, found.seen_at, kinds), hidden)

    @property
    def slug(self) -> str:
        return self.sight.contest.slug

    def contest(self) -> Document:
        return documents.contest(self.sight.contest)

    def state(self) -> Document:
        return documents.state(self.sight.contest, self.sight.moment)

    async def collection(self, kind: str) -> list[Document]:
        found = await self._read(kind, None)
        return [document for _, document in found if not isinstance(document, Absent)]

    async def one(self, kind: str, key: str) -> Document:
        found = (await self.several(kind, [key]))[key]
        if isinstance(found, Absent):
            raise NotFound(f"The contest {self.slug} has no {kind} {key}.", noun=kind, subject=key)
        return found

    async def several(self, kind: str, keys: Sequence[str]) -> dict[str, Document | Absent]:
        """What each of them is now."""
        found = dict(await self._read(kind, keys))
        return {key: found.get(key, Absent.GONE) for key in keys}

    async def board(self, group: str | None = None) -> list[ScoreboardRow]:
        """The scoreboard as this viewer sees it. The teams of a group are ranked among themselves."""
        fp, sight = self.judging.fp, self.sight
        entrants = [one.entrant for one in await fp.run(teams.teams(self.slug))]
        if group is not None:
            entrants = [one for one in entrants if group in one.groups]
        entries = await fp.run(contests.entries(self.slug))
        return scoreboard(sight.contest, entrants, entries, sight.moment, sees_all=sight.viewer.is_jury)

    async def scoreboard(self, group: str | None = None) -> Document:
        if group is not None:
            await self.one("groups", group)
        lines = await self.board(group)
        shown = self.sight.contest if self.sight.problems() else None
        found = documents.scoreboard(self.sight.contest, lines, self.sight.moment)
        return found if shown else {**found, "rows": [{**row, "problems": []} for row in found["rows"]]}

    async def awards(self) -> list[Document]:
        known = await self.judging.fp.run(teams.groups(self.slug))
        groups = [one for one in known if self._sees_group(one.kind)]
        found = documents.awards(self.sight.contest, await self.board(), groups)
        if self.sight.problems():
            return found
        return [one for one in found if not one["id"].startswith("first-to-solve-")]

    def _sees_group(self, kind: str) -> bool:
        return self.sight.viewer.is_jury or kind != "hidden"

    async def _read(self, kind: str, keys: Keys) -> list[Keyed]:
        """The objects of a kind, all or those named; a named one that is missing is left out."""
        match kind:
            case "submissions" | "judgements" | "runs":
                return await self._submissions(kind, keys)
            case "problems" | "groups" | "organizations" | "teams" | "persons" | "accounts":
                return await self._configured(kind, keys)
            case _:
                found = [one for one in await self._derived(kind) if keys is None or one[0] in keys]
        return found

    async def _derived(self, kind: str) -> list[Keyed]:
        contest = self.sight.contest
        if kind == "clarifications":
            return await self._clarifications()
        if kind == "awards":
            found = await self.awards()
        elif kind == "languages":
            versions, offered = self.judging.language_versions, self.judging.languages
            found = [documents.language(one, versions) for one in read_specs() if one.name in offered]
        else:
            assert kind == "judgement-types", kind
            found = documents.judgement_types(contest)
        return [(one["id"], one) for one in found]

    async def _configured(self, kind: str, keys: Keys) -> list[Keyed]:
        fp, sight, slug = self.judging.fp, self.sight, self.slug
        viewer = sight.viewer
        shown: list[tuple[bool, Document]]
        if kind == "problems":
            problems = await fp.run(teams.problems(slug, keys))
            shown = [(sight.problems(), documents.problem(one, sight.contest)) for one in problems]
        elif kind == "groups":
            groups = await fp.run(teams.groups(slug, keys))
            shown = [(self._sees_group(one.kind), documents.group(one)) for one in groups]
        elif kind == "organizations":
            organizations = await fp.run(teams.organizations(slug, keys))
            shown = [(True, documents.organization(one)) for one in organizations]
        elif kind == "teams":
            found = await fp.run(teams.teams(slug, keys))
            shown = [(sight.team(one.id), self._team(one)) for one in found]
        elif kind == "persons":
            found = [one for one in await fp.run(teams.teams(slug)) if sight.team(one.id)]
            shown = [(True, one) for one in documents.persons(found) if keys is None or one["id"] in keys]
        else:
            accounts = await fp.run(teams.accounts(slug, keys))
            shown = [(viewer.is_admin or one.name == viewer.name, documents.account(one)) for one in accounts]
        return [(one["id"], one if seen else Absent.HIDDEN) for seen, one in shown]

    def _team(self, one: teams.Team) -> Document:
        """Without hidden groups, which this viewer does not know."""
        found = documents.team(one)
        return {**found, "group_ids": [key for key in found["group_ids"] if self._knows_group(key)]}

    def _knows_group(self, key: str) -> bool:
        return self.sight.viewer.is_jury or key not in self.hidden_groups

    async def _submissions(self, kind: str, keys: Keys) -> list[Keyed]:
        numbers = {_job_id(key) for key in keys} if keys is not None else None
        ids = None if numbers is None else sorted(one for one in numbers if one is not None)
        judged = await self.judging.fp.run(teams.submissions(self.slug, ids))
        return [pair for one in judged for pair in self._of_submission(kind, one, keys)]

    def _of_submission(self, kind: str, one: JudgedSubmission, keys: Keys) -> list[Keyed]:
        sight = self.sight
        contest = sight.contest
        if kind == "submissions":
            document = documents.submission(one, contest, with_files=sight.sources(one.team))
            return [(document["id"], document if sight.submission(one) else Absent.HIDDEN)]
        if kind == "judgements":
            judged = documents.judgement(one, contest)
            all_of_them, seen = [] if judged is None else [judged], sight.judgement(one)
        else:
            all_of_them, seen = documents.runs(one, contest), sight.runs()
        found: dict[str, Document | Absent] = {
            document["id"]: document if seen else Absent.HIDDEN for document in all_of_them
        }
        if keys is not None and not seen:
            # One that was replaced is as hidden as the one that replaced it.
            found |= {key: Absent.HIDDEN for key in keys if _job_id(key) == one.job_id}
        return list(found.items())

    async def _clarifications(self) -> list[Keyed]:
        viewer = self.sight.viewer
        found = await self.judging.fp.run(contests.clarifications(self.slug, seen_by=None, limit=10_000))
        asked_by = {one.name: one.team for one in await self.judging.fp.run(teams.accounts(self.slug))}
        answers: list[Keyed] = []
        for one in found:
            own = viewer.team is not None and asked_by.get(one.author) == viewer.team
            seen = viewer.is_jury or one.to_all or own
            said = documents.clarifications(one, self.sight.contest, asked_by)
            answers.extend((document["id"], document if seen else Absent.HIDDEN) for document in said)
        return answers


def _job_id(key: str) -> int | None:
    """The submission that a submission, a judgement or a run belongs to."""
    number = key.split(".", maxsplit=1)[0].split("-", maxsplit=1)[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else None


def filtered(found: Iterable[Document], wanted: Iterable[tuple[str, Any]]) -> list[Document]:
    """Those whose properties have the wanted values; an empty one means that the property is null."""
    pairs = list(wanted)
    return [one for one in found if all((one.get(name) or "") == value for name, value in pairs)]

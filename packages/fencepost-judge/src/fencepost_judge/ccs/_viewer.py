"""What a client of the Contest API may see. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost_judge._scoreboard import Contest, Feedback, ScoredSubmission, TeamKind
from fencepost_judge._teams import JudgedSubmission, Team


@dataclass(frozen=True, slots=True)
class Viewer:
    """Spectators have no name, and teams no rights of a jury. `team` is the viewer's own in this contest."""

    name: str | None = None
    is_jury: bool = False
    is_admin: bool = False
    team: str | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """A viewer, a contest and a moment. `kinds` has the kind of every team of the contest."""

    viewer: Viewer
    contest: Contest
    moment: datetime
    kinds: Mapping[str, TeamKind]

    @property
    def has_begun(self) -> bool:
        return self.moment >= self.contest.starts_at

    def team(self, team_id: str) -> bool:
        if self.viewer.is_jury or team_id == self.viewer.team:
            return True
        return self.kinds.get(team_id, TeamKind.HIDDEN) is not TeamKind.HIDDEN

    def problems(self) -> bool:
        return self.viewer.is_jury or self.has_begun

    def submission(self, one: JudgedSubmission) -> bool:
        return self.team(one.team)

    def judgement(self, one: JudgedSubmission) -> bool:
        """A team sees its own results during the freeze, others do not; none of them while the contest tells
        no results."""
        if self.viewer.is_jury:
            return True
        if one.team == self.viewer.team:
            withheld = self.contest.feedback is Feedback.NONE and self.moment < self.contest.over_at
            return not withheld
        entry = ScoredSubmission(one.team, one.slug, one.submitted_at, one.verdict)
        return self.submission(one) and not self.contest.hides_of(entry, self.moment)

    def runs(self) -> bool:
        """Which test failed tells of the secret data."""
        return self.viewer.is_jury

    def sources(self, team_id: str) -> bool:
        return self.viewer.is_jury or (self.viewer.team is not None and team_id == self.viewer.team)


def kinds_of(teams: Sequence[Team]) -> dict[str, TeamKind]:
    return {one.id: one.kind for one in teams}

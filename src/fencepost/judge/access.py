"""Every route of the judge, who may use it and how large its request may be: the one table.

A route that is not in it cannot be made, and a line without a route is refused at the start. What a role may
*see* of what it may ask for (a contestant only his own submissions) the route decides, from the visitor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.judge.role import Role

SMALL_BYTES = 16_384
INPUT_BYTES_MAX = 65_536
"""The largest input of a trial."""
HOUSE_BYTES: int | None = None
"""No bound but the house's own, HTTP_BODY_MAX_BYTES."""


@dataclass(frozen=True, slots=True)
class Access:
    """The least role, and the largest body."""

    role: Role
    body_max_bytes: int | None = SMALL_BYTES
    carries_program: bool = False
    """Its body holds a program, and perhaps an input: bounded by what the largest ones take as JSON."""

    def bound(self, source_max_bytes: int) -> int | None:
        if not self.carries_program or self.body_max_bytes is None:
            return self.body_max_bytes
        # JSON writes a character of one byte with up to six.
        return self.body_max_bytes + 6 * source_max_bytes


CONTESTANT = Access(Role.CONTESTANT)
PROGRAM = Access(Role.CONTESTANT, carries_program=True)
JURY = Access(Role.JURY)
ADMIN = Access(Role.ADMIN)

ACCESS: Mapping[tuple[str, str], Access] = {
    ("POST", "/submit"): PROGRAM,
    ("GET", "/status/{job_id}"): CONTESTANT,
    ("GET", "/status/{job_id}/events"): CONTESTANT,
    ("GET", "/submissions"): CONTESTANT,
    ("GET", "/languages"): CONTESTANT,
    ("GET", "/problems"): CONTESTANT,
    ("GET", "/problems/{slug}"): CONTESTANT,
    ("PUT", "/problems/{slug}"): Access(Role.JURY, HOUSE_BYTES),
    ("POST", "/judge/rejudgings"): JURY,
    ("GET", "/judge/rejudgings"): JURY,
    ("GET", "/judge/rejudgings/{generation}"): JURY,
    ("POST", "/judge/rejudgings/{generation}/apply"): JURY,
    ("POST", "/judge/rejudgings/{generation}/drop"): JURY,
    ("POST", "/judge/trials"): Access(
        Role.CONTESTANT, SMALL_BYTES + 6 * INPUT_BYTES_MAX, carries_program=True
    ),
    ("GET", "/judge/trials/{job_id}"): CONTESTANT,
    ("GET", "/judge/contests"): CONTESTANT,
    ("GET", "/judge/contests/{contest}"): CONTESTANT,
    ("PUT", "/judge/contests/{contest}"): JURY,
    ("POST", "/judge/contests/{contest}/contestants"): CONTESTANT,
    ("GET", "/judge/contests/{contest}/scoreboard"): CONTESTANT,
    ("POST", "/judge/contests/{contest}/unfreeze"): JURY,
    ("GET", "/judge/contests/{contest}/clarifications"): CONTESTANT,
    ("POST", "/judge/contests/{contest}/clarifications"): CONTESTANT,
    ("POST", "/judge/contests/{contest}/clarifications/{clarification_id}/answer"): JURY,
    ("POST", "/judge/contests/{contest}/announcements"): JURY,
    ("GET", "/judge/workers"): JURY,
    ("GET", "/judge/me"): CONTESTANT,
    ("GET", "/judge/users"): ADMIN,
    ("PUT", "/judge/users/{name}"): ADMIN,
    ("DELETE", "/judge/users/{name}"): ADMIN,
    ("GET", "/judge/users/{name}/tokens"): ADMIN,
    ("POST", "/judge/users/{name}/tokens"): ADMIN,
    ("DELETE", "/judge/tokens/{token_id}"): ADMIN,
}

OWN_DOORS = ("/submit", "/status", "/submissions", "/languages", "/problems", "/judge")
"""Below these the judge asks who is there, and not the guard of the house."""

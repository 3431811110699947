"""Every route of the judge, who may use it and how large its request may be: the one table of each kind.

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
TRIAL = Access(Role.CONTESTANT, SMALL_BYTES + 6 * INPUT_BYTES_MAX, carries_program=True)
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
    ("GET", "/problems/{slug}/attachments/{name}"): CONTESTANT,
    ("PUT", "/problems/{slug}"): Access(Role.JURY, HOUSE_BYTES),
    ("POST", "/judge/rejudgings"): JURY,
    ("GET", "/judge/rejudgings"): JURY,
    ("GET", "/judge/rejudgings/{generation}"): JURY,
    ("POST", "/judge/rejudgings/{generation}/apply"): JURY,
    ("POST", "/judge/rejudgings/{generation}/drop"): JURY,
    ("POST", "/judge/trials"): TRIAL,
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

COURT = "/court"
"""Where the pages are."""

PAGES: Mapping[tuple[str, str], Access] = {
    ("GET", COURT): CONTESTANT,
    ("GET", f"{COURT}/problems/{{slug}}"): CONTESTANT,
    ("GET", f"{COURT}/problems/{{slug}}/attachments/{{name}}"): CONTESTANT,
    ("GET", f"{COURT}/submissions"): CONTESTANT,
    ("POST", f"{COURT}/submissions"): TRIAL,
    ("GET", f"{COURT}/submissions/{{job_id}}"): CONTESTANT,
    ("GET", f"{COURT}/submissions/{{job_id}}/events"): CONTESTANT,
    ("POST", f"{COURT}/trials"): TRIAL,
    ("GET", f"{COURT}/trials/{{job_id}}"): CONTESTANT,
    ("GET", f"{COURT}/contests"): CONTESTANT,
    ("GET", f"{COURT}/contests/{{contest}}"): CONTESTANT,
    ("POST", f"{COURT}/contests/{{contest}}/join"): CONTESTANT,
    ("GET", f"{COURT}/contests/{{contest}}/scoreboard"): CONTESTANT,
    ("GET", f"{COURT}/contests/{{contest}}/clarifications"): CONTESTANT,
    ("POST", f"{COURT}/contests/{{contest}}/clarifications"): CONTESTANT,
    ("POST", f"{COURT}/contests/{{contest}}/clarifications/{{clarification_id}}/answer"): JURY,
    ("POST", f"{COURT}/contests/{{contest}}/announcements"): JURY,
    ("POST", f"{COURT}/contests/{{contest}}/unfreeze"): JURY,
    ("GET", f"{COURT}/contest"): JURY,
    ("POST", f"{COURT}/contest"): JURY,
    ("GET", f"{COURT}/import"): JURY,
    ("POST", f"{COURT}/import"): Access(Role.JURY, HOUSE_BYTES),
    ("GET", f"{COURT}/rejudgings"): JURY,
    ("POST", f"{COURT}/rejudgings"): JURY,
    ("GET", f"{COURT}/rejudge"): JURY,
    ("GET", f"{COURT}/rejudgings/{{generation}}"): JURY,
    ("POST", f"{COURT}/rejudgings/{{generation}}/apply"): JURY,
    ("POST", f"{COURT}/rejudgings/{{generation}}/drop"): JURY,
    ("GET", f"{COURT}/workers"): JURY,
    ("GET", f"{COURT}/users"): ADMIN,
    ("POST", f"{COURT}/users"): ADMIN,
    ("GET", f"{COURT}/users/{{name}}"): ADMIN,
    ("POST", f"{COURT}/users/{{name}}/lock"): ADMIN,
    ("POST", f"{COURT}/users/{{name}}/tokens"): ADMIN,
    ("POST", f"{COURT}/tokens/{{token_id}}/revoke"): ADMIN,
    ("GET", f"{COURT}/account"): CONTESTANT,
    ("POST", f"{COURT}/account/password"): CONTESTANT,
    ("POST", f"{COURT}/logout"): CONTESTANT,
}
"""The pages and their forms: by a session's cookie, and each form with its token."""

OPEN_PAGES = frozenset(
    {
        ("GET", "/judge"),
        ("GET", f"{COURT}/login"),
        ("POST", f"{COURT}/login"),
        ("GET", f"{COURT}/static/{{name}}"),
    }
)
"""For which nobody needs to be known."""

OWN_DOORS = ("/submit", "/status", "/submissions", "/languages", "/problems", "/judge", COURT)
"""Below these the judge asks who is there, and not the guard of the house."""

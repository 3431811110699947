"""The access tables: each route of the judge, the least role that may use it, and the largest body it
accepts.

A route that is missing from its table cannot be created, and a table entry without a route is refused at
startup. What a role may *see* of a resource (a contestant sees only its own submissions) is decided by the
route, from the visitor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost_judge._role import JudgeRole

SMALL_BYTES = 16_384
INPUT_BYTES_MAX = 65_536
"""The largest input of a custom run."""
SERVICE_BYTES: int | None = None
"""No limit except that of the server, HTTP_BODY_MAX_BYTES."""


@dataclass(frozen=True, slots=True)
class Access:
    """The least role, and the largest body."""

    role: JudgeRole
    body_max_bytes: int | None = SMALL_BYTES
    carries_program: bool = False
    """The body holds a program and possibly an input: it is limited to the JSON size of the largest ones."""

    def bound(self, source_max_bytes: int) -> int | None:
        if not self.carries_program or self.body_max_bytes is None:
            return self.body_max_bytes
        # JSON needs up to six bytes for a character of one byte.
        return self.body_max_bytes + 6 * source_max_bytes


CONTESTANT = Access(JudgeRole.CONTESTANT)
PROGRAM = Access(JudgeRole.CONTESTANT, carries_program=True)
CUSTOM_RUN = Access(JudgeRole.CONTESTANT, SMALL_BYTES + 6 * INPUT_BYTES_MAX, carries_program=True)
JURY = Access(JudgeRole.JURY)
ADMIN = Access(JudgeRole.ADMIN)

ACCESS: Mapping[tuple[str, str], Access] = {
    ("POST", "/submit"): PROGRAM,
    ("POST", "/submit/batch"): Access(JudgeRole.CONTESTANT, SERVICE_BYTES),
    ("GET", "/status"): CONTESTANT,
    ("GET", "/status/{job_id}"): CONTESTANT,
    ("GET", "/status/{job_id}/events"): CONTESTANT,
    ("GET", "/submissions"): CONTESTANT,
    ("GET", "/languages"): CONTESTANT,
    ("GET", "/problems"): CONTESTANT,
    ("GET", "/problems/{slug}"): CONTESTANT,
    ("GET", "/problems/{slug}/attachments/{name}"): CONTESTANT,
    ("GET", "/problems/{slug}/statements/{name}"): CONTESTANT,
    ("PUT", "/problems/{slug}"): Access(JudgeRole.JURY, SERVICE_BYTES),
    ("POST", "/judge/api/rejudgings"): JURY,
    ("GET", "/judge/api/rejudgings"): JURY,
    ("GET", "/judge/api/rejudgings/{generation}"): JURY,
    ("POST", "/judge/api/rejudgings/{generation}/apply"): JURY,
    ("POST", "/judge/api/rejudgings/{generation}/drop"): JURY,
    ("POST", "/judge/api/custom-runs"): CUSTOM_RUN,
    ("GET", "/judge/api/custom-runs/{job_id}"): CONTESTANT,
    ("GET", "/judge/api/contests"): CONTESTANT,
    ("GET", "/judge/api/contests/{contest}"): CONTESTANT,
    ("PUT", "/judge/api/contests/{contest}"): JURY,
    ("POST", "/judge/api/contests/{contest}/contestants"): CONTESTANT,
    ("GET", "/judge/api/contests/{contest}/scoreboard"): CONTESTANT,
    ("POST", "/judge/api/contests/{contest}/unfreeze"): JURY,
    ("POST", "/judge/api/contests/{contest}/reveal"): JURY,
    ("POST", "/judge/api/contests/{contest}/finalize"): JURY,
    ("POST", "/judge/api/contests/{contest}/reopen"): JURY,
    ("POST", "/judge/api/contests/{contest}/intervals"): JURY,
    ("DELETE", "/judge/api/contests/{contest}/intervals/{interval_id}"): JURY,
    ("GET", "/judge/api/contests/{contest}/unverified"): JURY,
    ("GET", "/judge/api/contests/{contest}/balloons"): JURY,
    ("POST", "/judge/api/contests/{contest}/balloons"): JURY,
    ("GET", "/judge/api/contests/{contest}/archive"): JURY,
    ("GET", "/judge/api/contests/{contest}/news"): CONTESTANT,
    ("POST", "/judge/api/submissions/{job_id}/token"): CONTESTANT,
    ("POST", "/judge/api/submissions/{job_id}/verify"): JURY,
    ("GET", "/judge/api/submissions/{job_id}/dossier"): JURY,
    ("POST", "/judge/api/submissions/{job_id}/notes"): JURY,
    ("GET", "/judge/api/contests/{contest}/clarifications"): CONTESTANT,
    ("POST", "/judge/api/contests/{contest}/clarifications"): CONTESTANT,
    ("POST", "/judge/api/contests/{contest}/clarifications/{clarification_id}/answer"): JURY,
    ("POST", "/judge/api/contests/{contest}/announcements"): JURY,
    ("POST", "/judge/api/verifications"): Access(JudgeRole.JURY, SERVICE_BYTES),
    ("GET", "/judge/api/verifications"): JURY,
    ("GET", "/judge/api/verifications/{job_id}"): JURY,
    ("GET", "/judge/api/workers"): JURY,
    ("GET", "/judge/api/me"): CONTESTANT,
    ("GET", "/judge/api/users"): ADMIN,
    ("PUT", "/judge/api/users/{name}"): ADMIN,
    ("DELETE", "/judge/api/users/{name}"): ADMIN,
    ("GET", "/judge/api/users/{name}/tokens"): ADMIN,
    ("POST", "/judge/api/users/{name}/tokens"): ADMIN,
    ("DELETE", "/judge/api/tokens/{token_id}"): ADMIN,
}

PAGES_ROOT = "/judge"
"""The path of the pages."""

PAGES: Mapping[tuple[str, str], Access] = {
    ("GET", PAGES_ROOT): CONTESTANT,
    ("GET", f"{PAGES_ROOT}/problems/{{slug}}"): CONTESTANT,
    ("GET", f"{PAGES_ROOT}/problems/{{slug}}/attachments/{{name}}"): CONTESTANT,
    ("GET", f"{PAGES_ROOT}/problems/{{slug}}/statements/{{name}}"): CONTESTANT,
    ("GET", f"{PAGES_ROOT}/submissions"): CONTESTANT,
    ("POST", f"{PAGES_ROOT}/submissions"): CUSTOM_RUN,
    ("GET", f"{PAGES_ROOT}/submissions/{{job_id}}"): CONTESTANT,
    ("GET", f"{PAGES_ROOT}/submissions/{{job_id}}/events"): CONTESTANT,
    ("POST", f"{PAGES_ROOT}/submissions/{{job_id}}/token"): CONTESTANT,
    ("POST", f"{PAGES_ROOT}/submissions/{{job_id}}/verify"): JURY,
    ("POST", f"{PAGES_ROOT}/submissions/{{job_id}}/notes"): JURY,
    ("POST", f"{PAGES_ROOT}/submissions/{{job_id}}/test-runs"): JURY,
    ("GET", f"{PAGES_ROOT}/submissions/{{job_id}}/test-runs"): JURY,
    ("POST", f"{PAGES_ROOT}/sample-runs"): CUSTOM_RUN,
    ("GET", f"{PAGES_ROOT}/sample-runs"): CONTESTANT,
    ("POST", f"{PAGES_ROOT}/custom-runs"): CUSTOM_RUN,
    ("GET", f"{PAGES_ROOT}/custom-runs/{{job_id}}"): CONTESTANT,
    ("GET", f"{PAGES_ROOT}/contests"): CONTESTANT,
    ("GET", f"{PAGES_ROOT}/contests/{{contest}}"): CONTESTANT,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/join"): CONTESTANT,
    ("GET", f"{PAGES_ROOT}/contests/{{contest}}/clarifications"): CONTESTANT,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/clarifications"): CONTESTANT,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/clarifications/{{clarification_id}}/answer"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/announcements"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/unfreeze"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/reveal"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/finalize"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/reopen"): JURY,
    ("GET", f"{PAGES_ROOT}/contests/{{contest}}/news"): CONTESTANT,
    ("GET", f"{PAGES_ROOT}/contests/{{contest}}/unverified"): JURY,
    ("GET", f"{PAGES_ROOT}/contests/{{contest}}/balloons"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/balloons"): JURY,
    ("GET", f"{PAGES_ROOT}/contests/{{contest}}/clock"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/intervals"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/intervals/{{interval_id}}/restore"): JURY,
    ("GET", f"{PAGES_ROOT}/contests/{{contest}}/archive"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/accounts"): ADMIN,
    ("GET", f"{PAGES_ROOT}/contests/{{contest}}/teams"): JURY,
    ("POST", f"{PAGES_ROOT}/contests/{{contest}}/teams"): Access(JudgeRole.ADMIN, SERVICE_BYTES),
    ("GET", f"{PAGES_ROOT}/contest"): JURY,
    ("POST", f"{PAGES_ROOT}/contest"): JURY,
    ("GET", f"{PAGES_ROOT}/import"): JURY,
    ("POST", f"{PAGES_ROOT}/import"): Access(JudgeRole.JURY, SERVICE_BYTES),
    ("GET", f"{PAGES_ROOT}/verifications"): JURY,
    ("POST", f"{PAGES_ROOT}/verifications"): Access(JudgeRole.JURY, SERVICE_BYTES),
    ("GET", f"{PAGES_ROOT}/verifications/{{job_id}}"): JURY,
    ("GET", f"{PAGES_ROOT}/verifications/{{job_id}}/report"): JURY,
    ("POST", f"{PAGES_ROOT}/verifications/{{job_id}}/again"): JURY,
    ("POST", f"{PAGES_ROOT}/verifications/{{job_id}}/import"): JURY,
    ("GET", f"{PAGES_ROOT}/rejudgings"): JURY,
    ("POST", f"{PAGES_ROOT}/rejudgings"): JURY,
    ("GET", f"{PAGES_ROOT}/rejudge"): JURY,
    ("GET", f"{PAGES_ROOT}/rejudgings/{{generation}}"): JURY,
    ("POST", f"{PAGES_ROOT}/rejudgings/{{generation}}/apply"): JURY,
    ("POST", f"{PAGES_ROOT}/rejudgings/{{generation}}/drop"): JURY,
    ("GET", f"{PAGES_ROOT}/workers"): JURY,
    ("POST", f"{PAGES_ROOT}/workers/{{decision}}"): ADMIN,
    ("GET", f"{PAGES_ROOT}/users"): ADMIN,
    ("POST", f"{PAGES_ROOT}/users"): ADMIN,
    ("GET", f"{PAGES_ROOT}/users/{{name}}"): ADMIN,
    ("POST", f"{PAGES_ROOT}/users/{{name}}/lock"): ADMIN,
    ("POST", f"{PAGES_ROOT}/users/{{name}}/tokens"): ADMIN,
    ("POST", f"{PAGES_ROOT}/tokens/{{token_id}}/revoke"): ADMIN,
    ("GET", f"{PAGES_ROOT}/account"): CONTESTANT,
    ("POST", f"{PAGES_ROOT}/account/password"): CONTESTANT,
    ("POST", f"{PAGES_ROOT}/logout"): CONTESTANT,
}
"""The pages and their forms. A session cookie authenticates the visitor; each form carries its own token."""

OPEN_PAGES = frozenset(
    {
        ("GET", f"{PAGES_ROOT}/login"),
        ("POST", f"{PAGES_ROOT}/login"),
        ("GET", f"{PAGES_ROOT}/login/sso"),
        ("GET", f"{PAGES_ROOT}/login/sso/back"),
        ("GET", f"{PAGES_ROOT}/static/{{name}}"),
        # Of a contest that is public; to others it is not there without a login.
        ("GET", f"{PAGES_ROOT}/contests/{{contest}}/scoreboard"),
    }
)
"""The pages that need no login."""

CONTEST_API = frozenset(
    {
        ("GET", "/api"),
        ("GET", "/api/contests"),
        ("GET", "/api/contests/{contest}"),
        ("PATCH", "/api/contests/{contest}"),
        ("GET", "/api/contests/{contest}/state"),
        ("GET", "/api/contests/{contest}/scoreboard"),
        ("GET", "/api/contests/{contest}/access"),
        ("GET", "/api/contests/{contest}/account"),
        ("GET", "/api/contests/{contest}/event-feed"),
        ("GET", "/api/contests/{contest}/submissions/{submission}/files"),
        ("GET", "/api/contests/{contest}/{kind}"),
        ("GET", "/api/contests/{contest}/{kind}/{key}"),
        ("POST", "/api/contests/{contest}/submissions"),
        ("POST", "/api/contests/{contest}/clarifications"),
    }
)
"""The Contest API. It decides for each object: a spectator without an account sees what is public."""

OWN_AUTH_PATHS = ("/submit", "/status", "/submissions", "/languages", "/problems", "/api", PAGES_ROOT)
"""Below these paths the judge authenticates requests itself, in place of the server's own check."""

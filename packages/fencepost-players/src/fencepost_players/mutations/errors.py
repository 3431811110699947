"""The errors of mutations.

    MutationError               code, message, meta
    ├── Aborted                 aborted: nothing was written, or it is under way right now; send it again
    ├── AlreadyExists           already_exists: it committed, no response was kept; read the state
    ├── InvalidArgument         invalid_argument: the request is wrong; nothing was written
    │   └── KeyReused           the request id belongs to another method or body
    ├── FailedPrecondition      failed_precondition: the player lacks something, or has too much
    │   └── IdTooOld            the time-ordered request id is past its retention
    ├── NoSuchThing             not_found: there is no such player, item, pool, ...
    ├── Unavailable             unavailable: PostgreSQL cannot be reached, or its answer was lost
    ├── BadRoute                bad_route: there is no such method
    ├── Unimplemented           unimplemented: this installation cannot do it
    └── Internal                internal: a bug in Fencepost

The codes and their HTTP statuses are Twirp's; `code` distinguishes the two that are both 409.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from fencepost.errors import FencepostError


class MutationError(FencepostError):
    """The root. `meta` contains only strings, as Twirp requires."""

    code: ClassVar[str] = "unknown"
    status: ClassVar[int] = 500
    is_retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_seconds: float | None = None, **meta: object) -> None:
        super().__init__(message)
        self.meta: Mapping[str, str] = {name: str(value) for name, value in meta.items() if value is not None}
        self.retry_seconds: float | None = None
        if retry_seconds is not None:
            self.suggest(retry_seconds)

    def suggest(self, retry_seconds: float) -> None:
        """Set when to send it again. The header Retry-After has whole seconds; `meta` has the exact value."""
        self.retry_seconds = retry_seconds
        self.meta = {**self.meta, "retry_after_ms": str(max(1, round(retry_seconds * 1000)))}

    @property
    def rest_status(self) -> int:
        """The status outside Twirp, where it differs."""
        return self.status

    def body(self, shown: Callable[[str], str] = str) -> dict[str, object]:
        """The body of the answer, with every text as `shown` makes it."""
        meta = {name: shown(value) for name, value in self.meta.items()}
        return {"code": self.code, "msg": shown(str(self)), "meta": meta}


class Aborted(MutationError):
    """Send the same request again, with the same id."""

    code = "aborted"
    status = 409
    is_retryable = True


class AlreadyExists(MutationError):
    """It took effect, and no response was kept. Read the present state; do not resend it under another id."""

    code = "already_exists"
    status = 409


class InvalidArgument(MutationError):
    """The request is wrong: `meta["argument"]` names the field."""

    code = "invalid_argument"
    status = 400


class KeyReused(InvalidArgument):
    """One request id, two requests. A new request needs a new id."""

    @property
    def rest_status(self) -> int:
        return 422


class FailedPrecondition(MutationError):
    """The request is well-formed, and cannot be done in the present state."""

    code = "failed_precondition"
    status = 412


class IdTooOld(FailedPrecondition):
    """The request may have taken effect, and its idempotency key may be gone. Read the present state."""


class NoSuchThing(MutationError):
    """What the request names does not exist."""

    code = "not_found"
    status = 404


class Unavailable(MutationError):
    """The outcome is unknown, or nothing was begun. The same request with the same id settles it."""

    code = "unavailable"
    status = 503
    is_retryable = True


class BadRoute(MutationError):
    """No method has this path, or not for this verb."""

    code = "bad_route"
    status = 404


class Unimplemented(MutationError):
    """What it needs is not installed."""

    code = "unimplemented"
    status = 501


class Internal(MutationError):
    """A bug in Fencepost; the log has it. The same request with the same id is safe."""

    code = "internal"
    status = 500

"""The options of a handler's jobs: one value, from `@fp.job` to the SQL call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal, TypedDict, Unpack, cast, get_args

from fencepost._durations import Duration, optional_seconds_of, positive_seconds_of, seconds_of
from fencepost.errors import InvalidInput
from fencepost.jobs._payload_schema import Key, key_of
from fencepost.jobs.retry_policy import Exponential, Rate, RetryPolicy, exponential
from fencepost.kernel.call import Json
from fencepost.kernel.job import LabelTerms, SubmitOptions, UniqueTerms, check_words
from fencepost.kernel.rate import Limit
from fencepost.redis_streams.stream_names import PRIORITIES

Priority = Literal["urgent", "normal", "low", "bulk"]
Place = Literal["loop", "thread", "process"]
UnknownArguments = Literal["wait", "ignore"]
"""What becomes of a job with arguments that the handler does not have."""
OVERRIDES_HEADER = "options"
"""The header with what one submission changed of how its job runs."""
KEY_BYTES_MAX = 256
CHUNK_MAX = 1000


@dataclass(frozen=True, kw_only=True)
class Unique(UniqueTerms):
    """When a submission is answered with a job that exists already.

    Two jobs are the same if their kind and arguments are: all of them, those that `args` names, or what
    `key` makes of them. `kind=False` compares jobs of all kinds, `queue=True` only those of one queue.

    A job holds its key while it is in one of `states`. `period` is how long after its submission a job that
    has ended holds it. `replace` names what a submission changes of the job that waits under its key.
    """

    key: Key | None = field(default=None, kw_only=False)
    args: bool | Sequence[str] = True
    kind: bool = True
    queue: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.args, bool):
            check_words("args", self.args)
        if self.key is not None and self.args is not True:
            raise InvalidInput(
                "unique has a key and args, which both say what is compared; give one.", field="args"
            )
        if not (self.kind or self.queue or self.key is not None or self.args):
            raise InvalidInput(
                "unique compares nothing: without kind, queue, key and args all jobs would be one.",
                field="unique",
            )

    @classmethod
    def of(cls, given: Key | Unique | None) -> Unique | None:
        """What `unique=` was given: a key alone is the usual short form."""
        return given if given is None or isinstance(given, Unique) else cls(given)

    @property
    def named(self) -> Sequence[str]:
        """The arguments that it compares by name."""
        return () if isinstance(self.args, bool) else self.args

    def text(self, queue: str, kind: str, arguments: Mapping[str, Any], payload: Json) -> str:
        """The unique key of a job. Its kind comes first, where it counts."""
        if self.key is not None:
            made = key_of(self.key, arguments)
        elif self.args is False:
            made = ""
        else:
            made = _digest(
                {name: payload[name] for name in payload if self.args is True or name in self.named}
            )
        return f"{kind if self.kind else '*'}:{f'@{queue}:' if self.queue else ''}{made}"


class Overrides(TypedDict, total=False):
    """The options that one submission may change, as `@fp.job` takes them, and when and with what it runs."""

    run_at: datetime | None
    delay: Duration | None
    headers: Mapping[str, Json] | None
    tries: int | None
    lease: Duration | None
    timeout: Duration | None
    priority: Priority | int | None
    retry: RetryPolicy | None
    run_in: Place | None
    unique: Key | Unique | None
    concurrency_key: Key | None
    concurrency_limit: int | None
    rate: Rate | None
    tags: Sequence[str] | None
    search_by: Sequence[str] | None


_PLAIN = ("tries", "retry", "run_in", "concurrency_key", "concurrency_limit")
_DECLARED: Mapping[str, str] = {
    "kind": "it names the handler; submit through another one.",
    "chunk": "a chunk has jobs of many submissions. Declare it with @fp.job.",
    "chunk_wait": "a chunk has jobs of many submissions. Declare it with @fp.job.",
    "unknown_arguments": "each worker decides what it runs, before it reads a job. Declare it with @fp.job.",
}
"""The options of `@fp.job` that a submission cannot change, and why."""
_OF_THE_CALL = ("timeout", "run_in")
"""What belongs to the call of the function, which a chunk makes once for many jobs."""
_REMOVABLE = ("timeout", "unique", "concurrency_key")
"""The options for which None is a value: the submission has none."""


@dataclass(frozen=True, kw_only=True)
class JobOptions(SubmitOptions):
    """How the jobs of a handler are submitted, claimed and run."""

    unique: Unique | None = None
    timeout_seconds: float | None = None
    retry: RetryPolicy = field(default_factory=exponential)
    run_in: Place | None = None
    concurrency_key: Key | None = None
    rate: Rate | None = None
    unknown_arguments: UnknownArguments = "wait"
    headers: Mapping[str, Json] = field(default_factory=dict[str, Json])
    chunk: int | None = None
    """How many jobs its function takes at once; None for a function that takes one."""
    chunk_wait_seconds: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.run_in is not None and self.run_in not in get_args(Place):
            raise InvalidInput(
                f"run_in is {self.run_in!r}; it must be one of {', '.join(get_args(Place))}.", field="run_in"
            )
        if self.unknown_arguments not in get_args(UnknownArguments):
            raise InvalidInput(
                f"unknown_arguments is {self.unknown_arguments!r}; it must be wait or ignore.",
                field="unknown_arguments",
            )
        if not callable(self.retry):
            raise InvalidInput(
                f"retry is {self.retry!r}; it is a policy: exponential(), or a function of tries and error.",
                field="retry",
            )

        if self.chunk is not None and not 1 <= self.chunk <= CHUNK_MAX:
            raise InvalidInput(f"chunk is {self.chunk}; it must be 1 to {CHUNK_MAX}.", field="chunk")
        if self.chunk is not None and self.run_in == "process":
            raise InvalidInput("A chunk runs in the loop or in a thread, not in a process.", field="run_in")

    @property
    def bucket(self) -> Limit | None:
        """How fast its jobs may start."""
        return None if self.rate is None else self.rate.bucket

    def changed(self, **changes: Unpack[Overrides]) -> JobOptions:
        """The options of one submission. A new time replaces the old one; headers are added."""
        unknown = next((name for name in changes if name not in Overrides.__annotations__), None)
        if unknown is not None and unknown in _DECLARED:
            why = _DECLARED[unknown]
            raise InvalidInput(f"{unknown} cannot be changed for one submission: {why}", field=unknown)
        if unknown is not None:
            known = ", ".join(Overrides.__annotations__)
            raise InvalidInput(f"There is no option {unknown}; there are queue, {known}.", field=unknown)
        given = {name: value for name, value in changes.items() if value is not None or name in _REMOVABLE}
        if self.chunk is not None:
            self._check_chunk(given)
        made: dict[str, Any] = {name: given[name] for name in _PLAIN if name in given}
        if "run_at" in given or "delay" in given:
            delay: Any = given.get("delay")
            made |= {
                "run_at": given.get("run_at"),
                "delay_seconds": None if delay is None else seconds_of("delay", delay),
            }
        for name, convert in _CONVERTED.items():
            if name in given:
                field_name, read = convert
                made[field_name] = read(given[name])
        if "rate" in given:
            made["rate"] = self._same_bucket(cast("Rate", given["rate"]))
        labels = {name: given.get(name, getattr(self.labels, name)) for name in ("tags", "search_by")}
        headers = {**self.headers, **self._travelling(given, made), **cast("Any", given.get("headers", {}))}
        return replace(self, **made, labels=LabelTerms(**cast("Any", labels)), headers=headers)

    def _check_chunk(self, given: Mapping[str, Any]) -> None:
        if (name := next((name for name in _OF_THE_CALL if name in given), None)) is not None:
            raise InvalidInput(
                f"A chunk runs many jobs in one call: a submission cannot change its {name}. Declare it "
                "with @fp.job.",
                field=name,
            )

    def _travelling(self, given: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Json]:
        """What the worker must know of the changes. Its code has the other options itself."""
        told = dict(self.headers.get(OVERRIDES_HEADER, {}))
        if "timeout" in given:
            told["timeout_seconds"] = made["timeout_seconds"]
        if "run_in" in given:
            told["run_in"] = made["run_in"]
        if "retry" in given:
            if not isinstance(made["retry"], Exponential):
                raise InvalidInput(
                    "A submission takes its retry policy along as a value: give exponential(...). A function "
                    "stays in the code: declare it with @fp.job.",
                    field="retry",
                )
            told["retry"] = asdict(made["retry"])
        return {OVERRIDES_HEADER: told} if told else {}

    def overridden(self, headers: Mapping[str, Json]) -> JobOptions:
        """The options under which a job runs that was submitted with these headers."""
        given = headers.get(OVERRIDES_HEADER)
        if given is None:
            return self
        try:
            retry = given.get("retry")
            return replace(
                self,
                timeout_seconds=optional_seconds_of(
                    "timeout", given.get("timeout_seconds", self.timeout_seconds)
                ),
                retry=self.retry if retry is None else Exponential(**retry),
                run_in=given.get("run_in", self.run_in),
            )
        except (AttributeError, TypeError) as error:
            raise InvalidInput(
                f"the header {OVERRIDES_HEADER} cannot be read: {error}", field="headers"
            ) from None

    def _same_bucket(self, rate: Rate) -> Rate:
        """All jobs of a kind share its rate: one submission may count under another key of it, no more."""
        if rate.bucket != self.bucket:
            raise InvalidInput(
                "The rate of a kind is one for all its jobs: declare it with @fp.job. A submission may give "
                "it another key, not another limit.",
                field="rate",
            )
        return rate


def priority_number(priority: Priority | int) -> int:
    """The number of a priority. Priorities have names in the API and numbers in the database."""
    if isinstance(priority, int):
        return priority
    if priority not in PRIORITIES:
        raise InvalidInput(
            f"priority is {priority!r}; it must be one of {', '.join(PRIORITIES)}.", field="priority"
        )
    return PRIORITIES.index(priority)


_CONVERTED: Mapping[str, tuple[str, Callable[[Any], object]]] = {
    "lease": ("lease_seconds", lambda lease: positive_seconds_of("lease", lease)),
    "timeout": ("timeout_seconds", lambda timeout: optional_seconds_of("timeout", timeout)),
    "priority": ("priority", priority_number),
    "unique": ("unique", Unique.of),
}
"""The options whose field has another name or form."""


def _digest(compared: Mapping[str, Json]) -> str:
    """The document itself while it is short, because people read keys."""
    text = json.dumps(compared, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text if len(text.encode()) <= KEY_BYTES_MAX else f"sha256:{sha256(text.encode()).hexdigest()}"

"""A handler: a typed function, and how its jobs are submitted and run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from fencepost.drive.lanes import NORMAL
from fencepost.errors import InvalidInput
from fencepost.jobs.policy import RetryPolicy, exponential
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, Json
from fencepost.kernel.drivers import run
from fencepost.transaction import SyncTransaction, Transaction

if TYPE_CHECKING:
    from fencepost.jobs.job import Job
    from fencepost.kernel.drivers import AsyncConnection, SyncConnection

P = ParamSpec("P")
Function = Callable[Concatenate["Job", P], Any]


@dataclass(frozen=True)
class Handler(Generic[P]):
    """A function that runs jobs of one kind. Its arguments are the payload, checked on both sides."""

    function: Function[P]
    queue: str
    kind: str
    tries_max: int = 5
    lease_seconds: float = 60
    timeout_seconds: float | None = None
    lane: int = NORMAL
    policy: RetryPolicy = exponential()  # noqa: RUF009 -- a pure function, shared on purpose.
    unique: Callable[P, str] | None = None
    concurrency_key: Callable[P, str] | None = None
    concurrency_limit: int | None = None
    run_at: datetime | None = None
    headers: Mapping[str, Json] | None = None

    def options(
        self,
        *,
        run_at: datetime | None = None,
        lane: int | None = None,
        headers: Mapping[str, Json] | None = None,
    ) -> Handler[P]:
        """The same handler with other options for the jobs that are submitted through it."""
        return replace(
            self,
            run_at=run_at or self.run_at,
            lane=self.lane if lane is None else lane,
            headers=headers or self.headers,
        )

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[kernel_job.Submitted]:
        """The submission as a value: nothing is sent yet."""
        return kernel_job.submit(
            self.queue,
            self.kind,
            self.payload(*args, **kwargs),
            lane=self.lane,
            run_at=self.run_at,
            tries_max=self.tries_max,
            lease_seconds=self.lease_seconds,
            unique_key=None if self.unique is None else f"{self.kind}:{self.unique(*args, **kwargs)}",
            concurrency_key=None if self.concurrency_key is None else self.concurrency_key(*args, **kwargs),
            concurrency_limit=None if self.concurrency_key is None else (self.concurrency_limit or 1),
            headers=self.headers,
        )

    @overload
    def submit(
        self, tx: Transaction | AsyncConnection, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[kernel_job.Submitted]: ...
    @overload
    def submit(
        self, tx: SyncTransaction | SyncConnection, *args: P.args, **kwargs: P.kwargs
    ) -> kernel_job.Submitted: ...
    def submit(self, tx: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Submit a job in a transaction of ours or of yours: the job and your rows, or neither."""
        call = self.call(*args, **kwargs)
        if isinstance(tx, Transaction | SyncTransaction):
            return tx.run(call)
        send: Any = run  # Its overloads tell sync from async, which `tx` does not say here.
        return send(tx, call)

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> Json:
        """The arguments as a JSON document, by name."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return self.arguments(**bound.arguments).model_dump(mode="json")
        except ValidationError as error:
            raise InvalidInput(f"{self.kind}: {_first_problem(error)}", field=_first_field(error)) from error

    def parse(self, payload: Json) -> dict[str, Any]:
        """The arguments of a payload. Raises InvalidInput when it does not fit the function."""
        try:
            model = self.arguments.model_validate(payload)
        except ValidationError as error:
            raise InvalidInput(f"{self.kind}: {_first_problem(error)}", field=_first_field(error)) from error
        return {name: getattr(model, name) for name in self.arguments.model_fields}

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def _signature(self) -> inspect.Signature:
        signature = inspect.signature(self.function)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """A model of the function's parameters after the job. Strict about names, as a call is."""
        hints = get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise InvalidInput(
                    f"{self.kind}: *{name} cannot be a payload; name each argument.", field=name
                )
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (hints.get(name, Any), default)
        return create_model(
            self.kind, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
        )


class Handlers:
    """The handlers of one process, by kind."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Handler[...]] = {}

    def add(self, handler: Handler[...]) -> None:
        if handler.kind in self._by_kind:
            raise InvalidInput(
                f"{handler.kind} has a handler already; give this one another kind.", field="kind"
            )
        _ = handler.arguments  # A signature that cannot be a payload is found now, not at the first job.
        self._by_kind[handler.kind] = handler

    def get(self, kind: str) -> Handler[...] | None:
        return self._by_kind.get(kind)

    def __iter__(self) -> Iterator[Handler[...]]:
        return iter(self._by_kind.values())

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(sorted({handler.queue for handler in self}))


def _first_problem(error: ValidationError) -> str:
    detail = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, detail['loc'])) or 'payload'}: {detail['msg']}"


def _first_field(error: ValidationError) -> str:
    return ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"])) or "payload"

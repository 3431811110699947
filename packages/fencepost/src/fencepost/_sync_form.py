"""One implementation for code with an event loop and for code without one.

A method is written once, as a coroutine. With an event loop its caller awaits it. Without one, nothing inside
it suspends: its drivers block and answer at once (`settled`), so it runs to its end in one step (`complete`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import update_wrapper, wraps
from types import MethodType, TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, final, overload

P = ParamSpec("P")
O = TypeVar("O")  # noqa: E741 -- The object whose method it is.
T = TypeVar("T")


async def settled(value: Awaitable[T] | T) -> T:
    """The result of a driver: awaited if the driver is asynchronous, and as it is if the driver blocks."""
    answer: Any = value
    return cast("T", await answer if hasattr(answer, "__await__") else answer)


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose drivers block. Needs no event loop, and disturbs none that runs."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return cast("T", ended.value)
    coroutine.close()
    raise RuntimeError("A blocking operation tried to wait on an event loop. This is a bug in Fencepost.")


class SyncContext(AbstractContextManager[T, bool | None]):
    """An asynchronous context manager whose drivers block, for a plain `with`."""

    def __init__(self, context: AbstractAsyncContextManager[T, bool | None]) -> None:
        self._context = context

    def __enter__(self) -> T:
        return complete(_entering(self._context))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return complete(_leaving(self._context, kind, error, trace))


async def _entering(context: AbstractAsyncContextManager[T, bool | None]) -> T:
    return await context.__aenter__()


async def _leaving(context: AbstractAsyncContextManager[Any, bool | None], *error: Any) -> bool | None:
    return await context.__aexit__(*error)


@final
class Awaited:
    """Marks the form whose operations are awaited."""


@final
class Blocking:
    """Marks the form whose operations block."""


Form = TypeVar("Form", Awaited, Blocking)


class Operations(Generic[Form]):
    """An object with operations. `is_blocking` tells its form at run time, `Form` tells a type checker."""

    is_blocking: bool


class operation(Generic[O, P, T]):  # noqa: N801 -- A decorator.
    """A method, written as a coroutine: awaited in one form of its object, blocking in the other."""

    def __init__(self, method: Callable[Concatenate[O, P], Coroutine[Any, Any, T]]) -> None:
        @wraps(method)
        def blocking(self: O, *args: P.args, **kwargs: P.kwargs) -> T:
            return complete(method(self, *args, **kwargs))

        self._method = method
        self._blocking = blocking
        update_wrapper(cast("Any", self), method)

    @overload
    def __get__(self, instance: None, owner: object) -> Self: ...
    @overload
    def __get__(
        self, instance: Operations[Awaited], owner: object = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, instance: Operations[Blocking], owner: object = None) -> Callable[P, T]: ...
    def __get__(self, instance: Operations[Any] | None, owner: object = None) -> Any:
        if instance is None:
            return self
        return MethodType(self._blocking if instance.is_blocking else self._method, instance)


class context(Generic[O, P, T]):  # noqa: N801 -- A decorator.
    """A context manager, written as an async generator: `async with` in one form, `with` in the other."""

    def __init__(self, method: Callable[Concatenate[O, P], AsyncGenerator[T]]) -> None:
        managing = asynccontextmanager(method)

        @wraps(method)
        def blocking(self: O, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T, bool | None]:
            return SyncContext(managing(self, *args, **kwargs))

        self._method = managing
        self._blocking = blocking
        update_wrapper(cast("Any", self), method)

    @overload
    def __get__(self, instance: None, owner: object) -> Self: ...
    @overload
    def __get__(
        self, instance: Operations[Awaited], owner: object = None
    ) -> Callable[P, AbstractAsyncContextManager[T, bool | None]]: ...
    @overload
    def __get__(
        self, instance: Operations[Blocking], owner: object = None
    ) -> Callable[P, AbstractContextManager[T, bool | None]]: ...
    def __get__(self, instance: Operations[Any] | None, owner: object = None) -> Any:
        if instance is None:
            return self
        return MethodType(self._blocking if instance.is_blocking else self._method, instance)

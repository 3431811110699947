"""The identity of a step across releases: its name, and a fingerprint of its place and its functions.

A given name (`name=`) identifies the step permanently. A derived one is the kind with a digest of the place:
the sources and every step on the way, with their functions. It does not change with the version of Python or
the order of branches, so numbers in a lambda are not part of it. They are part of the fingerprint, which is
compared where both were taken by the same version of Python: a lambda has no name, and another one in its
place is another step until the user declares that it is the same.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

from fencepost.flows._node import GraphNode
from fencepost.flows.sources._source import is_timeless

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_BY_REPR = (operator.itemgetter, operator.attrgetter, operator.methodcaller)


def derived_name(node: GraphNode) -> str:
    return f"{node.kind}-{_digest(_place(node))}"


def fingerprint(node: GraphNode) -> str:
    """A fingerprint of the step's own functions, and of those that give it its keys."""
    keys = [other for other in node.ancestors() if other.kind == "key_by" and other is not node]
    return _digest([[_exact(function) for function in each.functions] for each in (*keys, node)])


def _place(node: GraphNode) -> list[Any]:
    """Everything that leads to the step, except replays of dead letters: these may be added or removed."""
    parents = [_place(parent) for parent in node.parents if not _is_replay(parent)]
    if node.kind == "union" and len(parents) == 1:
        return list[Any](parents[0])
    about = node.name if node.source is not None else node.gathers or ""
    return [node.kind, node.side, about, [_stable(function) for function in node.functions], parents]


def _is_replay(node: GraphNode) -> bool:
    """Whether only replayed dead letters reach this node."""
    return all(is_timeless(other.source) for other in node.ancestors() if other.source is not None)


def _stable(function: Callable[..., Any]) -> Any:
    """A description that is the same in every version of Python."""
    if isinstance(function, functools.partial):
        within: Callable[..., Any] = function.func
        return _stable(within)
    if isinstance(function, _BY_REPR):
        return repr(function)  # pyright: ignore[reportUnknownArgumentType] - A getter of anything.
    code = getattr(function, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return getattr(function, "__qualname__", type(function).__qualname__)
    arguments = code.co_varnames[: code.co_argcount]
    words = {word for part in _codes(code) for word in (*part.co_names, *_texts(part.co_consts))}
    return ["lambda", list(arguments), sorted(words)]


def _exact(function: Callable[..., Any]) -> Any:
    code = getattr(function, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return _stable(function)
    constants = [
        sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for part in _codes(code)
        for value in part.co_consts
        if not isinstance(value, CodeType)
    ]
    return [_stable(function), [part.co_code.hex() for part in _codes(code)], constants]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _texts(constants: Sequence[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from _texts(list(constant))  # pyright: ignore[reportUnknownArgumentType]


def _digest(place: Any) -> str:
    return hashlib.sha256(json.dumps(place).encode()).hexdigest()[:10]

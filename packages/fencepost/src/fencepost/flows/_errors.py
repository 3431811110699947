"""Errors that flows raise.

FlowError
├── GuaranteeNotMet     the graph cannot keep the requested guarantee; says why, and what could
├── GraphRefused        the graph cannot be run as it is defined
├── StateTooLarge       the state of a task is larger than what a commit stores; says what helps
├── StateDamaged        a part of the stored state is gone, or is not what the checkpoint names
├── StateDiskFailed     the local disk that holds state failed, or is full
├── SinkRejected        a sink will never take a value, and the user chose to stop; says which
└── StartRefused        a setting, a server or the stored state does not fit; says the remedy
    ├── SourceTrimmed   the source no longer has records that were not processed yet
    ├── SourceChanged   the source is not what was partly read, so its rest cannot be told
    └── StateMismatch   the stored state is of another version of the graph
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.errors import FencepostError


class FlowError(FencepostError):
    """The base class of errors that flows raise."""


class GuaranteeNotMet(FlowError, ValueError):
    """A sink or a source cannot keep the guarantee that the flow asks for."""


class GraphRefused(FlowError, ValueError):
    """The graph cannot be run as it is defined."""


class SinkRejected(FlowError):
    """A sink rejects a value permanently, and its `on_reject` is "stop": the task stops before that value."""


class StateTooLarge(FlowError):
    """The state of a task is larger than what one commit can store. The task stops before it, and loses
    nothing."""


class StateDamaged(FlowError):
    """A part of the stored state is gone, or its bytes are not those that the checkpoint names."""


class StateDiskFailed(FlowError):
    """The local disk that holds state beyond memory failed, or is full. The task stops, and loses nothing:
    its state is in PostgreSQL."""


class StartRefused(FlowError):
    """The flow does not start: to continue would break its guarantee. The message names the remedy."""


class SourceTrimmed(StartRefused):
    """Records that were not processed yet are gone from the source."""


class SourceChanged(StartRefused):
    """What a source has found or partly read is another thing by now."""


class StateMismatch(StartRefused):
    """The stored state was written by another version of the graph, and no migration is given for it."""


def unfit(flow: str, seen: Mapping[str, Any]) -> str:
    """Explain why a changed flow cannot continue, and what to do; `seen` is what the database reports."""
    anew = f"or give the flow another name than {flow}, under which it starts from scratch"
    stored, given = seen.get("stored"), seen.get("given")
    match seen.get("why"):
        case "units":
            words = (
                f"The flow {flow} was divided into {_divided(stored)}, and this graph divides it into "
                f"{_divided(given)}: records would be lost and doubled. Keep {_kept(stored)}, "
                f"{_regrouped(flow, stored, given)}{anew}"
            )
        case "sender":
            words = (
                f"{seen.get('sender')} of the flow {flow} has read {stored}, and is to go on in {given} from "
                f"the same place. Give the source a name of its own (name=), {anew}"
            )
        case "name":
            words = (
                f"The flow {flow} has read {seen.get('reads')} as {stored}, and would read it again from its "
                f"beginning as {given}. Give the source its old name (name=), {anew}"
            )
        case "steps":
            words = _lost_steps(flow, seen, anew)
        case _:
            words = (
                f"Another graph of the flow {flow} was registered while this one ran, or a savepoint of "
                f"another one was "
                f"restored. Start the worker again with the graph that is to run, {anew}"
            )
    holder = seen.get("held_by")
    return f"{words}. It is run by {holder} now." if holder else f"{words}."


def _lost_steps(flow: str, seen: Mapping[str, Any], anew: str) -> str:
    """Name the steps whose state the graph does not account for, and the arguments that would account for
    it."""
    lost, new = seen.get("lost", []), seen.get("new", {})
    told = "; ".join(_lost_step(each) for each in lost)
    names = [each["step"] for each in lost]
    remedies = [f"give a step that is the same its old name (name={_either(names)})"]
    pairs = {
        each["step"]: next((name for name, kind in new.items() if kind == each["stored"].get("kind")), None)
        for each in lost
        if each["why"] == "gone"
    }
    renames = {old: name for old, name in pairs.items() if name is not None}
    if renames:
        remedies.append(f"say that it has another name now: Flow({flow!r}, rename={renames})")
    remedies.append(f"have the state forgotten: Flow({flow!r}, drop_state={names})")
    begun = (
        f" New steps with state: {', '.join(f'{name} ({kind})' for name, kind in new.items())}."
        if new
        else ""
    )
    return (
        f"The flow {flow} has stored state that this graph does not account for: {told}.{begun} Going on "
        f"would lose it or "
        f"give it to another step. Either {', or '.join(remedies)}, {anew}"
    )


def _lost_step(each: Mapping[str, Any]) -> str:
    stored, name = each["stored"], each["step"]
    given: Mapping[str, Any] = each.get("given") or {}
    kind = stored.get("kind")
    match each["why"]:
        case "kind":
            return f"{name} was a {kind} and is a {given.get('kind')}"
        case "window":
            return f"{name} ({kind}) gathered in {stored.get('window')} and now in {given.get('window')}"
        case "stage":
            return (
                f"{name} ({kind}) was behind {stored.get('stage', 1)} key_by with groups and is behind "
                f"{given.get('stage', 1)}"
            )
        case "function":
            return f"{name} ({kind}) has another function"
        case _:
            return f"{name} ({kind}) is not in the graph"


def _either(names: Sequence[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _regrouped(flow: str, stored: Any, given: Any) -> str:
    if not stored.get("groups") or not given.get("groups") or "stages" in {*stored, *given}:
        return ""
    return (
        "divide the state anew (fencepost flows drain, savepoint, and then "
        f"fencepost flows regroup {flow} SAVEPOINT {given['groups']}), "
    )


def _divided(shape: Any) -> str:
    if "stages" in shape:
        return f"{', then '.join(map(str, shape['stages']))} key groups"
    units = {"groups": f"{shape.get('groups')} key groups", "all": "one unit for all keys"}
    return units.get(shape.get("units"), "one unit for each partition")


def _kept(shape: Any) -> str:
    if "stages" in shape:
        return " and then ".join(f"key_by(groups={groups})" for groups in shape["stages"])
    ways = {"groups": f"key_by(groups={shape.get('groups')})", "all": "key_by without groups"}
    return ways.get(shape.get("units"), "the graph without key_by")

"""The testing kit, for users and for Fencepost's own tests: a settable clock, crashes at named points,
network faults.

Clock                             the database's time, set by the test
Child                             a real process: stepped, stopped, killed
crash_at, at_crash_point          a crash, or any other action, at a named point of this process
Signals                           named events to wait for
Proxy                             late, cut and half-open connections; the reply to a COMMIT lost
History, check, once, ...         a record of what happened, and the rules that it must keep
points_in                         the named points of a package, for a test of their names
workflow_harness                  workflows on a worker in this process, whose sleeps are skipped
crash_everywhere                  the same, with a crash or a pause at every point of every step
stubbed_steps, run_inline         a workflow with other steps in it; a workflow in memory, without servers
run_flow, check_flow, check_sink  a flow in memory, with and without crashes; a sink against real servers

Modules for flows and workflows are loaded on first use of one of their names: a child process that
needs none of them starts sooner.
"""

import typing

from fencepost._lazy_imports import on_first_use
from fencepost.crashpoints import PlannedCrash
from fencepost.testing._children import Child
from fencepost.testing._clock import Clock
from fencepost.testing._crashes import at_crash_point, crash_at
from fencepost.testing._errors import (
    ChildFailed,
    EffectsDiffer,
    HistoryBroken,
    KitError,
    NotATestDatabase,
    PointMissed,
)
from fencepost.testing._fault_state import DropRule
from fencepost.testing._history import (
    Breach,
    History,
    HistoryLine,
    Rule,
    at_most_once,
    breaches,
    check,
    once,
    tokens_grow,
)
from fencepost.testing._points import Point, points_in
from fencepost.testing._proxy import Proxy
from fencepost.testing._signals import Signals

if typing.TYPE_CHECKING:
    from fencepost.testing._flow_harness import FlowBroken, FlowOutcome, check_flow, run_flow
    from fencepost.testing._flow_sinks import SinkBroken, check_sink
    from fencepost.testing._inline_workflow import InlineOutcome, run_inline
    from fencepost.testing._workflow_runs import (
        CrashReport,
        WorkflowHarness,
        crash_everywhere,
        stubbed_steps,
        workflow_harness,
    )

__all__ = [
    "Breach",
    "Child",
    "ChildFailed",
    "Clock",
    "CrashReport",
    "DropRule",
    "EffectsDiffer",
    "FlowBroken",
    "FlowOutcome",
    "History",
    "HistoryBroken",
    "HistoryLine",
    "InlineOutcome",
    "KitError",
    "NotATestDatabase",
    "PlannedCrash",
    "Point",
    "PointMissed",
    "Proxy",
    "Rule",
    "Signals",
    "SinkBroken",
    "WorkflowHarness",
    "at_crash_point",
    "at_most_once",
    "breaches",
    "check",
    "check_flow",
    "check_sink",
    "crash_at",
    "crash_everywhere",
    "once",
    "points_in",
    "run_flow",
    "run_inline",
    "stubbed_steps",
    "tokens_grow",
    "workflow_harness",
]

_HOMES = {
    "CrashReport": "fencepost.testing._workflow_runs",
    "FlowBroken": "fencepost.testing._flow_harness",
    "FlowOutcome": "fencepost.testing._flow_harness",
    "InlineOutcome": "fencepost.testing._inline_workflow",
    "SinkBroken": "fencepost.testing._flow_sinks",
    "WorkflowHarness": "fencepost.testing._workflow_runs",
    "check_flow": "fencepost.testing._flow_harness",
    "check_sink": "fencepost.testing._flow_sinks",
    "crash_everywhere": "fencepost.testing._workflow_runs",
    "run_flow": "fencepost.testing._flow_harness",
    "run_inline": "fencepost.testing._inline_workflow",
    "stubbed_steps": "fencepost.testing._workflow_runs",
    "workflow_harness": "fencepost.testing._workflow_runs",
}


if not typing.TYPE_CHECKING:  # A type checker that saw it would accept every name.
    __getattr__ = on_first_use(__name__, _HOMES)

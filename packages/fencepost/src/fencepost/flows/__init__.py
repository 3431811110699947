"""Flows: streams whose effects happen exactly once. The graph, the windows, the sources and the sinks."""

from fencepost.flows._errors import (
    FlowError,
    GraphRefused,
    GuaranteeNotMet,
    SinkRejected,
    SourceChanged,
    SourceTrimmed,
    StartRefused,
    StateDamaged,
    StateDiskFailed,
    StateMismatch,
    StateTooLarge,
)
from fencepost.flows._graph import Flow, KeyedStream, Stream, Windowed
from fencepost.flows._guarantee import Guarantee, Promise
from fencepost.flows._keyed_steps import Context, Process
from fencepost.flows._record import Failure, IdempotentRecord, WindowResult, WindowUpdate
from fencepost.flows._windows import Calendar, Interval, Session, Sliding, Tumbling
from fencepost.flows.sinks._rejecting import STOP, DeadLetters, Rejected, Rejection
from fencepost.flows.sinks._sink import CheckpointId, FlowContext, Sink
from fencepost.flows.sinks._sink_types import (
    CallSink,
    CheckpointAwareSink,
    ListSink,
    StagedSink,
    TableSink,
    TransactionalSink,
    TwoPhaseCommitSink,
)
from fencepost.flows.sources._iterable import IterableSource

__all__ = [
    "STOP",
    "Calendar",
    "CallSink",
    "CheckpointAwareSink",
    "CheckpointId",
    "Context",
    "DeadLetters",
    "Failure",
    "Flow",
    "FlowContext",
    "FlowError",
    "GraphRefused",
    "Guarantee",
    "GuaranteeNotMet",
    "IdempotentRecord",
    "Interval",
    "IterableSource",
    "KeyedStream",
    "ListSink",
    "Process",
    "Promise",
    "Rejected",
    "Rejection",
    "Session",
    "Sink",
    "SinkRejected",
    "Sliding",
    "SourceChanged",
    "SourceTrimmed",
    "StagedSink",
    "StartRefused",
    "StateDamaged",
    "StateDiskFailed",
    "StateMismatch",
    "StateTooLarge",
    "Stream",
    "TableSink",
    "TransactionalSink",
    "Tumbling",
    "TwoPhaseCommitSink",
    "WindowResult",
    "WindowUpdate",
    "Windowed",
]

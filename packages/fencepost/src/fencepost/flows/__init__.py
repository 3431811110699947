"""Flows: streams whose effects happen exactly once. The graph, the windows, the sources and the sinks."""

from fencepost.flows.errors import (
    FlowError,
    GraphRefused,
    GuaranteeNotMet,
    SinkRejected,
    SourceTrimmed,
    StartRefused,
    StateMismatch,
)
from fencepost.flows.graph import Flow, KeyedStream, Stream, Windowed
from fencepost.flows.guarantee import Guarantee, Promise
from fencepost.flows.keyed_steps import Context, Process
from fencepost.flows.record import Failure, IdempotentRecord, WindowResult
from fencepost.flows.sinks.rejecting import STOP, DeadLetters, Rejected, Rejection
from fencepost.flows.sinks.sink import CheckpointId, FlowContext, Sink
from fencepost.flows.sinks.sink_types import (
    CallSink,
    CheckpointAwareSink,
    ListSink,
    StagedSink,
    TableSink,
    TransactionalSink,
    TwoPhaseCommitSink,
)
from fencepost.flows.sources.iterable import IterableSource
from fencepost.flows.windows import Session, Sliding, Tumbling

__all__ = [
    "STOP",
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
    "SourceTrimmed",
    "StagedSink",
    "StartRefused",
    "StateMismatch",
    "Stream",
    "TableSink",
    "TransactionalSink",
    "Tumbling",
    "TwoPhaseCommitSink",
    "WindowResult",
    "Windowed",
]

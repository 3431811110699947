"""What a flow refuses.

FlowError
├── GuaranteeNotMet     the graph cannot promise what was asked; says why, and what could
├── GraphRefused        the graph cannot be run as it was drawn
└── StartRefused        a setting, a server or the stored state does not fit; says the remedy
    ├── SourceTrimmed   the source no longer has records that were not taken yet
    └── StateMismatch   the stored state is of another version of the graph
"""

from __future__ import annotations

from fencepost.errors import FencepostError


class FlowError(FencepostError):
    """The root of what flows refuse."""


class GuaranteeNotMet(FlowError, ValueError):
    """A sink or a source cannot keep the promise that was asked of the flow."""


class GraphRefused(FlowError, ValueError):
    """The graph cannot be run as it was drawn."""


class StartRefused(FlowError):
    """The flow does not start: going on would break its promise. The message names the remedy."""


class SourceTrimmed(StartRefused):
    """Records that nobody has taken yet are gone from the source."""


class StateMismatch(StartRefused):
    """The stored state was written by another version of the graph, and nothing says how to convert it."""

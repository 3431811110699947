"""The forms of declared graphs, as both clients have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.workflows._graph import Form, Graph, Part
    from fencepost.workflows._graph_plan import OnFailure
    from fencepost.workflows._handler import WorkflowHandler


class GraphForms:
    """Builds graphs of jobs. Each is started in a transaction of yours, as a workflow."""

    def graph_workflow(self) -> WorkflowHandler[[dict[str, Any]], Any]:
        """The workflow that runs graphs."""
        raise NotImplementedError

    def graph(self, name: str) -> Graph:
        """A graph of jobs: `graph.add(task(handler, ...))` adds a node, `graph.start(tx)` starts it."""
        # Most programs have no graphs.
        from fencepost.workflows._graph import Graph  # noqa: PLC0415

        return Graph(self.graph_workflow, name)

    def chain(self, *parts: Part, on_failure: OnFailure | None = None) -> Form:
        """Tasks that run one after the other; `previous` as an argument is the result of the one before. A
        part may be a group or a chain. Returns the result of the last."""
        from fencepost.workflows._graph import Chain  # noqa: PLC0415

        return Chain(self.graph_workflow, "chain", parts, on_failure)

    def group(self, *parts: Part, on_failure: OnFailure | None = None) -> Form:
        """Tasks that run side by side. Returns the list of their results."""
        from fencepost.workflows._graph import Group  # noqa: PLC0415

        return Group(self.graph_workflow, "group", parts, on_failure)

    def chord(self, parts: Sequence[Part], body: Part, *, on_failure: OnFailure | None = None) -> Form:
        """A group, and a task that runs when all of it has ended; `previous` is the list of its results. With
        `on_failure="continue"` a failed one is None in that list."""
        from fencepost.workflows._graph import Chain, Group  # noqa: PLC0415

        group = Group(self.graph_workflow, "group", parts, on_failure)
        return Chain(self.graph_workflow, "chord", (group, body))

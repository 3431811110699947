"""Declared graphs of jobs: how they are built and started.

graph = fp.graph("fulfil")
quote = graph.add(task(price, order_id=7))
packed = graph.add(task(pack, line=quote.result["lines"].each()))
graph.add(task(ship, parcels=packed.result), when=quote.result["cents"].above(0))
await graph.start(tx)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, cast, overload

from pydantic_core import PydanticSerializationError, to_jsonable_python

from fencepost.errors import InvalidInput
from fencepost.jobs._handler import Handler
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, Json
from fencepost.kernel.job import Submission
from fencepost.transaction import SyncTransaction, Transaction, send
from fencepost.workflows._graph_plan import (
    NODES_MAX,
    Condition,
    Input,
    Needs,
    NodePlan,
    OnFailure,
    Output,
    Path,
    Plan,
    Source,
)
from fencepost.workflows._handler import WorkflowHandler

if TYPE_CHECKING:
    from fencepost.kernel.drivers import AsyncConnection, SyncConnection

P = ParamSpec("P")
Runner = Callable[[], WorkflowHandler[[dict[str, Any]], Any]]
"""The workflow that runs graphs; raises InvalidInput when the client has declared none."""
_BEFORE = ""
"""The node before, in a chain: no node has this name."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result that a node will have, or a part of it: `quote.result["lines"]`."""

    source: Source
    is_each: bool = False

    def __getitem__(self, part: str | int) -> Result:
        return Result(Source(node=self.source.node, path=(*self.source.path, part)))

    def each(self) -> Any:
        """One job for each element of this result, which is a list. The node's result is the list of
        theirs."""
        return Result(self.source, is_each=True)

    def is_true(self) -> Condition:
        return Condition(source=self.source, test="true")

    def is_false(self) -> Condition:
        return Condition(source=self.source, test="false")

    def equals(self, value: Json) -> Condition:
        return Condition(source=self.source, test="equals", value=value)

    def differs(self, value: Json) -> Condition:
        return Condition(source=self.source, test="differs", value=value)

    def above(self, value: float) -> Condition:
        return Condition(source=self.source, test="above", value=value)

    def below(self, value: float) -> Condition:
        return Condition(source=self.source, test="below", value=value)

    def contains(self, value: Json) -> Condition:
        return Condition(source=self.source, test="contains", value=value)


previous: Any = Result(Source(node=_BEFORE))
"""In a chain: the result of what comes before."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph."""

    name: str

    @property
    def result(self) -> Any:
        """Its result, as an argument of a later node. Typed as Any, so that it fits every argument."""
        return Result(Source(node=self.name))


@dataclass(frozen=True, slots=True)
class Task:
    """A call of a handler whose arguments may be results of other nodes."""

    handler: Handler[...]
    arguments: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return self.handler.kind.partition("@")[0]

    def plan(
        self,
        name: str,
        *,
        after: Sequence[Node | str] = (),
        when: Sequence[Condition] = (),
        needs: Needs = "all",
        on_failure: OnFailure = "fail",
        before: Any = None,
    ) -> NodePlan:
        handler, options = self.handler, self.handler.declared
        arguments: dict[str, Json] = {}
        inputs: list[Input] = []
        for key, value in self.arguments.items():
            placed = len(inputs)
            plain = _without_results(_with(before, value), (key,), inputs)
            # What is no result is checked now, as of a submission.
            arguments[key] = plain if len(inputs) > placed else handler.shape.argument(key, value)
        return NodePlan(
            name=name,
            kind=handler.kind,
            queue=handler.queue,
            priority=options.priority,
            tries=options.tries,
            lease_seconds=options.lease_seconds,
            headers=dict(options.headers),
            arguments=arguments,
            inputs=tuple(inputs),
            after=tuple(one if isinstance(one, str) else one.name for one in after),
            when=tuple(when),
            needs=needs,
            on_failure=on_failure,
        )

    def place(self, graph: Graph, before: Any, on_failure: OnFailure | None) -> Any:
        name = graph.free_name(self.kind)
        plan = self.plan(name, on_failure=on_failure or "fail", before=before, after=_nodes_of(before))
        return graph.add_plan(plan).result


def task(handler: Handler[P] | WorkflowHandler[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Task:
    """A job or a workflow as a node of a graph. An argument may be the result of another node, or hold some
    in lists and mappings."""
    of: Handler[...] = handler.handler if isinstance(handler, WorkflowHandler) else handler
    options = of.declared
    if options.unique is not None:
        raise InvalidInput(
            f"{of.kind} is unique, so a node might find its job in another graph; give "
            "`handler.options(unique=None)`. A node runs once for its graph anyway.",
            field="unique",
        )
    if options.run_at is not None or options.delay_seconds is not None:
        raise InvalidInput(
            f"{of.kind} has a time; a node runs when what it depends on has ended. Start the graph later.",
            field="run_at",
        )
    return Task(of, of.shape.given(args, kwargs))


class Part(Protocol):
    """What a chain or a group is made of: tasks, chains and groups."""

    def place(self, graph: Graph, before: Any, on_failure: OnFailure | None, /) -> Any:
        """Add its nodes to the graph; returns the results that it has for what comes after."""
        ...


class Startable:
    """What is started as a workflow."""

    runner: Runner

    def plan(self) -> Plan:
        """The graph, checked: raises InvalidInput when it cannot run."""
        raise NotImplementedError

    def submission(self) -> Submission:
        """The start as a value: nothing is sent yet."""
        plan = self.plan()
        handler = self.runner().options(headers={"graph": plan.name})
        return handler.submission(plan.model_dump(mode="json", exclude_defaults=True))

    def call(self) -> Call[kernel_job.Submitted]:
        """The start as a kernel call, to be sent by the caller."""
        return self.submission().call()

    @overload
    def start(self, tx: Transaction | AsyncConnection) -> Awaitable[kernel_job.Submitted]: ...
    @overload
    def start(self, tx: SyncTransaction | SyncConnection) -> kernel_job.Submitted: ...
    def start(self, tx: Any) -> Any:
        """Start it in a Fencepost transaction or on your connection. It and your rows commit together, or
        neither does. `fp.jobs.result` waits for what it returns."""
        return cast("Any", send)(tx, self.call())


class Graph(Startable):
    """Jobs that run when those they depend on have ended, with their results as arguments."""

    def __init__(self, runner: Runner, name: str) -> None:
        self.runner = runner
        self.name = name
        self._nodes: dict[str, NodePlan] = {}
        self._output: Output | None = None

    def add(
        self,
        node: Task,
        /,
        *,
        name: str | None = None,
        after: Sequence[Node | str] = (),
        when: Condition | Result | Sequence[Condition | Result] = (),
        needs: Needs = "all",
        on_failure: OnFailure = "fail",
    ) -> Node:
        """Add a node; it runs when all nodes whose results it names, and those in `after`, have ended.

        It is skipped when one of them has no result (`needs="any"`: when none has one), or when a condition
        in `when` does not hold. `on_failure` says what follows when it fails: `fail` the graph, `skip` what
        depends on it, or `continue` with None in the place of its result.
        """
        conditions = [when] if isinstance(when, Condition | Result) else when
        tests = [one.is_true() if isinstance(one, Result) else one for one in conditions]
        return self.add_plan(
            node.plan(name or node.kind, after=after, when=tests, needs=needs, on_failure=on_failure)
        )

    def add_plan(self, plan: NodePlan) -> Node:
        """Add a node by its plan. Raises InvalidInput for a name that a node has already."""
        if plan.name in self._nodes:
            raise InvalidInput(
                f"The graph has a node {plan.name!r} already; give this one another name: `name=`.",
                field="name",
            )
        if len(self._nodes) >= NODES_MAX:
            raise InvalidInput(f"A graph has at most {NODES_MAX} nodes.", field="graph")
        self._nodes[plan.name] = plan
        return Node(plan.name)

    def result(self, name: str) -> Any:
        """The result of a node by its name, also of one that is added later."""
        return Node(name).result

    def returns(self, value: Any) -> None:
        """What the graph returns: a value in which results may stand. By default the results of the nodes
        that nothing depends on, by name."""
        inputs: list[Input] = []
        self._output = Output(value=_without_results(value, (), inputs), inputs=tuple(inputs))

    def free_name(self, wanted: str) -> str:
        """The wanted name, or with a number behind it if a node has it already."""
        name, number = wanted, 1
        while name in self._nodes:
            number += 1
            name = f"{wanted}-{number}"
        return name

    def plan(self) -> Plan:
        return Plan(name=self.name, nodes=tuple(self._nodes.values()), output=self._output).checked()


@dataclass(frozen=True)
class Form(Startable):
    """A chain or a group: a graph whose edges follow from its form."""

    runner: Runner
    name: str
    parts: Sequence[Part]
    on_failure: OnFailure | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidInput(f"A {self.name} needs at least one task.", field="parts")

    def plan(self) -> Plan:
        graph = Graph(self.runner, self.name)
        graph.returns(self.place(graph, None, None))
        return graph.plan()

    def place(self, graph: Graph, before: Any, on_failure: OnFailure | None, /) -> Any:
        raise NotImplementedError


class Chain(Form):
    """Parts that run one after the other."""

    def place(self, graph: Graph, before: Any, on_failure: OnFailure | None, /) -> Any:
        for part in self.parts:
            before = part.place(graph, before, self.on_failure or on_failure)
        return before


class Group(Form):
    """Parts that run side by side; the result is the list of theirs."""

    def place(self, graph: Graph, before: Any, on_failure: OnFailure | None, /) -> Any:
        return [part.place(graph, before, self.on_failure or on_failure) for part in self.parts]


def _nodes_of(value: Any) -> list[str]:
    """The nodes of a result, or of the results of a group."""
    if isinstance(value, Result):
        return [value.source.node]
    return [name for one in value or () for name in _nodes_of(one)]


def _with(before: Any, value: Any) -> Any:
    """The value with what comes before in the place of previous."""
    if isinstance(value, Result) and value.source.node == _BEFORE:
        if before is None:
            raise InvalidInput(
                "previous has nothing before it here: it is known in a chain, from its second part on.",
                field="graph",
            )
        if isinstance(before, Result):
            source = Source(node=before.source.node, path=(*before.source.path, *value.source.path))
            return Result(source, value.is_each)
        if value.is_each:
            raise InvalidInput(
                "previous is a group, whose results are known by number: name its parts instead of `each()`.",
                field="graph",
            )
        return _part_of(before, value.source.path)
    if isinstance(value, Mapping):
        return {key: _with(before, one) for key, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_with(before, one) for one in cast("Sequence[Any]", value)]
    return value


def _part_of(before: Sequence[Any], path: Path) -> Any:
    """A part of the results of a group."""
    if not path:
        return before
    try:
        found = before[cast("int", path[0])]
    except (IndexError, TypeError):
        raise InvalidInput(
            f"previous is a group of {len(before)} results and has no part {path[0]!r}.", field="graph"
        ) from None
    if isinstance(found, Result):
        return Result(Source(node=found.source.node, path=(*found.source.path, *path[1:])))
    return _part_of(found, path[1:])


def _without_results(value: Any, at: Path, inputs: list[Input]) -> Json:
    """The value as JSON, with None where results stand, and the places of these."""
    if isinstance(value, Result):
        inputs.append(Input(at=at, source=value.source, each=value.is_each))
        return None
    if isinstance(value, Node):
        raise InvalidInput(f"{value.name} is a node; its result is `.result`.", field="graph")
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: _without_results(one, (*at, key), inputs) for key, one in items}
    if isinstance(value, list | tuple):
        many = enumerate(cast("Sequence[Any]", value))
        return [_without_results(one, (*at, place), inputs) for place, one in many]
    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidInput(f"{'.'.join(map(str, at))} is no JSON value: {error}", field="graph") from error

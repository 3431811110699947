"""A declared graph as a document, and what can be decided about it: its order, which nodes are skipped, and
the arguments of a node. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, NamedTuple, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Json

NODES_MAX = 1_000
FAN_OUT_MAX = 10_000
NAME_BYTES_MAX = 200
OnFailure = Literal["fail", "skip", "continue"]
"""What follows when a node fails: the graph fails, what depends on it is skipped, or it goes on without its
result."""
Needs = Literal["all", "any"]
"""Whether a node runs only when all it depends on has ended well, or when any of it has."""
Test = Literal["true", "false", "equals", "differs", "above", "below", "contains"]
Path = tuple[str | int, ...]


class Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(Document):
    """A part of the result of a node."""

    node: str
    path: Path = ()

    def __str__(self) -> str:
        return self.node + "".join(f"[{part!r}]" for part in self.path)


class Input(Document):
    """A place in the arguments that a result fills. With `each`, one job for each element of the result."""

    at: Path
    source: Source
    each: bool = False


class Condition(Document):
    """A test of a result."""

    source: Source
    test: Test = "true"
    value: Json = None

    def __str__(self) -> str:
        value = "" if self.test in ("true", "false") else f" {self.value!r}"
        return f"{self.source} {'is ' if not value else ''}{self.test}{value}"

    def holds(self, found: Json) -> bool:
        """Raises InvalidInput when the two cannot be compared."""
        if self.test in ("true", "false"):
            return bool(found) is (self.test == "true")
        if self.test in ("equals", "differs"):
            return (found == self.value) is (self.test == "equals")
        try:
            if self.test == "contains":
                return self.value in found
            return bool(found > self.value if self.test == "above" else found < self.value)
        except TypeError as error:
            raise InvalidInput(f"{self} cannot be tested: {error}", field="graph") from None


class NodePlan(Document):
    """A node: the job that runs, or one for each element of a result."""

    name: str
    kind: str
    queue: str
    priority: int = 1
    tries: int = 5
    lease_seconds: float = 60
    headers: dict[str, Json] = Field(default_factory=dict)
    arguments: dict[str, Json] = Field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    after: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()
    needs: Needs = "all"
    on_failure: OnFailure = "fail"

    @property
    def predecessors(self) -> list[str]:
        """The nodes that end before this one is decided, each once."""
        named = [source.node for source in (*(i.source for i in self.inputs), *(c.source for c in self.when))]
        return list(dict.fromkeys((*named, *self.after)))

    @property
    def each(self) -> Input | None:
        return next((given for given in self.inputs if given.each), None)


class Output(Document):
    """What the graph returns: a value with places that results fill."""

    value: Json = None
    inputs: tuple[Input, ...] = ()


class Plan(Document):
    """A graph that was checked: its nodes can be run in the order of `nodes`."""

    name: str
    nodes: tuple[NodePlan, ...]
    output: Output | None = None
    """None: the results of the nodes that nothing depends on, by name."""

    @classmethod
    def read(cls, document: Json) -> Self:
        """A stored graph. Raises InvalidInput when it is none."""
        try:
            return cls.model_validate(document).checked()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise InvalidInput(f"This is no graph: {place}: {first['msg']}", field="graph") from error

    def checked(self) -> Self:
        """The same with the nodes in an order in which they can run. Refuses cycles, unknown nodes, names
        that are used twice, and a graph that is too large."""
        _require(len(self.nodes) > 0, f"The graph {self.name!r} has no nodes.")
        _require(
            len(self.nodes) <= NODES_MAX,
            f"The graph {self.name!r} has {len(self.nodes)} nodes; at most {NODES_MAX} are allowed. One node "
            f"runs up to {FAN_OUT_MAX} jobs with `each()`, and a node may be a workflow.",
        )
        nodes: dict[str, NodePlan] = {}
        for node in self.nodes:
            _check_name(node.name)
            _require(node.name not in nodes, f"Two nodes are named {node.name!r}; give one another name.")
            nodes[node.name] = node
        for node in self.nodes:
            _check_references(node.name, node.predecessors, nodes)
            _require(
                sum(given.each for given in node.inputs) <= 1,
                f"The node {node.name!r} has `each()` in two arguments; one node fans out over one result.",
            )
        if self.output is not None:
            _check_references("what the graph returns", [i.source.node for i in self.output.inputs], nodes)
        return self.model_copy(update={"nodes": tuple(_ordered(nodes))})

    @property
    def leaves(self) -> list[NodePlan]:
        """The nodes that nothing depends on."""
        needed = {name for node in self.nodes for name in node.predecessors}
        return [node for node in self.nodes if node.name not in needed]


class Ended(NamedTuple):
    """How a node ended, as it is recorded."""

    state: Literal["finished", "failed", "skipped"]
    because: str | None = None

    def gives_result(self, on_failure: OnFailure) -> bool:
        """Whether what depends on the node may run."""
        return self.state == "finished" or (self.state == "failed" and on_failure == "continue")


def why_skipped(node: NodePlan, ended: Mapping[str, Ended], policies: Mapping[str, OnFailure]) -> str | None:
    """Why a node whose predecessors have all ended does not run; None when its conditions decide."""
    missing = [name for name in node.predecessors if not ended[name].gives_result(policies[name])]
    if not missing or (node.needs == "any" and len(missing) < len(node.predecessors)):
        return None
    return ", ".join(f"{name} {ended[name].state}" for name in missing)


def found_at(source: Source, result: Json) -> Json:
    """The part of a result that a source names. A node without a result gives None for all of its parts.
    Raises InvalidInput when the result has no such part."""
    found = result
    for part in source.path if result is not None else ():
        try:
            found = found[part]
        except (KeyError, IndexError, TypeError):
            raise InvalidInput(f"The result of {source.node} has no part {source}.", field="graph") from None
    return found


def filled(value: Json, inputs: Sequence[Input], results: Mapping[str, Json]) -> Json:
    """The value with its places filled."""
    holder = [deepcopy(value)]
    for given in inputs:
        place: Any = holder
        *before, last = (0, *given.at)
        for part in before:
            place = place[part]
        place[last] = found_at(given.source, results[given.source.node])
    return holder[0]


def arguments_of(node: NodePlan, results: Mapping[str, Json]) -> list[dict[str, Json]]:
    """The arguments of the jobs of a node: one, or one for each element. Raises InvalidInput when the
    results do not fit."""
    each = node.each
    plain = [given for given in node.inputs if not given.each]
    arguments = cast("dict[str, Json]", filled(node.arguments, plain, results))
    if each is None:
        return [arguments]
    elements: Any = found_at(each.source, results[each.source.node])
    if elements is None:
        return []
    if not isinstance(elements, list):
        raise InvalidInput(f"{each.source} is no list, so there is nothing to fan out over.", field="graph")
    many: list[Any] = [*elements]
    if len(many) > FAN_OUT_MAX:
        raise InvalidInput(
            f"{each.source} has {len(many)} elements; a node runs at most {FAN_OUT_MAX} jobs.", field="graph"
        )
    return [filled(arguments, [each], {each.source.node: _wrapped(each.source, one)}) for one in many]


def _wrapped(source: Source, element: Json) -> Json:
    """A result that has the element where the source looks."""
    for part in reversed(source.path):
        element = {part: element}
    return element


def _ordered(nodes: Mapping[str, NodePlan]) -> Iterator[NodePlan]:
    """Each node after all that it depends on. Raises InvalidInput for a cycle, and names it."""
    left = {name: len(node.predecessors) for name, node in nodes.items()}
    dependants: dict[str, list[str]] = {name: [] for name in nodes}
    for name, node in nodes.items():
        for before in node.predecessors:
            dependants[before].append(name)
    ready = deque(name for name, count in left.items() if not count)
    while ready:
        name = ready.popleft()
        del left[name]
        yield nodes[name]
        for after in dependants[name]:
            left[after] -= 1
            if not left[after]:
                ready.append(after)
    if left:
        raise InvalidInput(f"The graph has a cycle: {' -> '.join(_cycle(nodes, left))}.", field="graph")


def _cycle(nodes: Mapping[str, NodePlan], left: Mapping[str, int]) -> list[str]:
    """Every node that is left depends on one that is left: walking back comes to a cycle."""
    walked: dict[str, None] = {}
    name = next(iter(left))
    while name not in walked:
        walked[name] = None
        name = next(before for before in nodes[name].predecessors if before in left)
    names = list(walked)
    return [*reversed(names[names.index(name) :]), names[-1]]


def _check_name(name: str) -> None:
    _require(
        bool(name) and len(name.encode()) <= NAME_BYTES_MAX and "/" not in name,
        f"A node is named {name!r}; a name has 1 to {NAME_BYTES_MAX} bytes and no slash.",
    )


def _check_references(what: str, names: Sequence[str], nodes: Mapping[str, NodePlan]) -> None:
    for name in names:
        _require(
            name in nodes, f"{what} depends on {name!r}, which the graph does not have: {', '.join(nodes)}."
        )
        _require(name != what, f"The graph has a cycle: {name} -> {name}.")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvalidInput(otherwise, field="graph")

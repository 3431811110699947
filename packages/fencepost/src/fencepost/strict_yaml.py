"""Untrusted YAML: plain mappings, lists and scalars within a budget, and nothing else.

A few hundred bytes of aliases or merge keys can expand beyond a machine's memory, a number of a megabyte
takes minutes to convert, and a tag may name a type. So a document is checked twice before it becomes values:
as events, before anything is built (anchors, aliases, depth, number of values), and as nodes, before anything
is converted (tags, duplicate keys, merge keys, numbers that are too long).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import yaml

BYTES_MAX = 1 << 20
NODES_MAX = 100_000
DEPTH_MAX = 32
NUMBER_CHARS_MAX = 100
_TAG = "tag:yaml.org,2002:"
_CONVERTED = frozenset(_TAG + name for name in ("int", "float", "bool", "null", "timestamp"))
_KNOWN = _CONVERTED | {_TAG + name for name in ("str", "map", "seq")}


class YamlError(ValueError):
    """The text is not YAML, or contains more than plain values. Names the line and the reason, and never
    quotes the text: it may hold a password."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why if line is None else f"line {line}: {why}")
        self.why = why
        self.line = line


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum size of a document."""

    bytes_max: int = BYTES_MAX
    nodes_max: int = NODES_MAX
    depth_max: int = DEPTH_MAX


def load_yaml(text: str, budget: Budget | None = None) -> Any:
    """The document's value; None for an empty one. Raises YamlError, and nothing else."""
    import yaml  # noqa: PLC0415 - Many processes have no file.

    parse_events = cast("Callable[..., Iterator[yaml.Event]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType]
    budget = budget or Budget()
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > budget.bytes_max:
        raise YamlError(f"the document has {size} bytes; at most {budget.bytes_max} are read")
    # Both parse alike; the C loader is in every wheel and twenty times as fast.
    kind: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(parse_events(text, Loader=kind), budget)
        loader = kind(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_nodes(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise YamlError(
            f"it is not YAML: {error.problem or 'no value'}", mark.line + 1 if mark else None
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        if isinstance(error, YamlError):
            raise
        # An invalid date or number, or a character that is not allowed.
        raise YamlError("it is not YAML: it contains an invalid value or character") from None


def _check_events(events: Iterator[yaml.Event], budget: Budget) -> None:
    """Runs before anything is built. The parser yields events one by one: a refusal ends the reading."""
    import yaml  # noqa: PLC0415

    depth = nodes = documents = 0
    for event in events:
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise YamlError("there is a second document; only one is read", line)
        if isinstance(event, yaml.AliasEvent):
            raise YamlError("an alias (*name) is refused; write the value out", line)
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if not isinstance(event, yaml.NodeEvent):
            continue
        if event.anchor is not None:
            raise YamlError("an anchor (&name) is refused; write the value out", line)
        nodes += 1
        if nodes > budget.nodes_max:
            raise YamlError(f"the document has more than {budget.nodes_max} values", line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > budget.depth_max:
                raise YamlError(f"it is nested too deeply: more than {budget.depth_max} levels", line)


def _check_nodes(root: yaml.Node) -> None:
    """Runs before anything is converted. Not recursive, though the depth is bounded by now."""
    import yaml  # noqa: PLC0415

    waiting: list[yaml.Node] = [root]
    while waiting:
        node = waiting.pop()
        _check_tag(node)
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                _check_key(key, seen)
                waiting.append(value)


def _check_tag(node: yaml.Node) -> None:
    line = node.start_mark.line + 1
    if node.tag not in _KNOWN:
        raise YamlError("a tag (!name) is refused; only plain values are read", line)
    if node.tag in _CONVERTED and len(node.value) > NUMBER_CHARS_MAX:
        raise YamlError(f"a number has more than {NUMBER_CHARS_MAX} characters", line)
    if node.tag == _TAG + "int" and ":" in node.value:
        # YAML 1.1 reads 1:30 as ninety, which is never intended.
        raise YamlError("a number with colons is refused; put it in quotes", line)


def _check_key(key: yaml.Node, seen: set[str]) -> None:
    import yaml  # noqa: PLC0415

    line = key.start_mark.line + 1
    if not isinstance(key, yaml.ScalarNode):
        raise YamlError("a key must be a word or a number", line)
    if key.tag == _TAG + "merge":
        raise YamlError("a merge key (<<) is refused; write the values out", line)
    _check_tag(key)
    if key.value in seen:
        raise YamlError("a key occurs twice", line)
    seen.add(key.value)

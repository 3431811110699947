"""The plans that the server made, read from what `debug_print_plan` prints.

EXPLAIN sees a call of a function from outside. This setting prints every plan as it is made, also of the
statements inside a function and under the settings that the function carries. The text is PostgreSQL's own
form of a node: `{KIND :field value :field ({KIND ...} {KIND ...})}`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

TOKEN = re.compile(r'[{}()]|"(?:\\.|[^"\\])*"|(?:\\.|[^\s{}()\\"])+', re.DOTALL)

# A constant is printed byte by byte; a batch of ids makes thousands of them, and none is of interest.
BYTES = re.compile(r"\[[-\d\s]*\]")

TABLE_SCANS = frozenset({"SEQSCAN", "SAMPLESCAN"})
INDEX_SCANS = frozenset({"INDEXSCAN", "INDEXONLYSCAN", "BITMAPINDEXSCAN"})
SCAN = re.compile(rf"\{{(?:{'|'.join(TABLE_SCANS | INDEX_SCANS)})\s")


@dataclass(frozen=True)
class Node:
    """A node of a plan, or a list (of kind ''), with the values of each field in order."""

    kind: str
    fields: Mapping[str, list["Node | str"]]

    def word(self, name: str) -> str:
        """The field as one word. Newer servers prefix the fields that a node inherits: scan.scanrelid."""
        value = next(values for key, values in self.fields.items() if key.rpartition(".")[2] == name)[0]
        assert isinstance(value, str), f"{self.kind}.{name} is no word"
        return value

    def children(self, name: str | None = None) -> Iterator["Node"]:
        """The nodes right below, all or those of one field, through lists."""
        for key, values in self.fields.items():
            if name is None or key.rpartition(".")[2] == name:
                yield from _nodes(values)

    def walk(self) -> Iterator["Node"]:
        """This node and everything below it."""
        yield self
        for child in self.children():
            yield from child.walk()


@dataclass(frozen=True)
class Scan:
    """One access to a table, by oids. `conditioned` says that an index has an Index Cond to search by."""

    kind: str
    table: int
    index: int | None
    conditioned: bool

    @property
    def reads_everything(self) -> bool:
        return self.kind in TABLE_SCANS or (self.index is not None and not self.conditioned)


def without_constants(text: str) -> str:
    """The printed plan without the bytes of its constants: a loop prints the same one again and again."""
    return BYTES.sub("", text)


def has_scan(text: str) -> bool:
    """Whether reading the plan is worth its time: most print the evaluation of an expression."""
    return SCAN.search(text) is not None


def read_plan(text: str) -> Node:
    """The tree of one printed plan."""
    tokens = iter(TOKEN.findall(text))
    first = next(tokens)
    assert first == "{", f"a plan begins with a brace, not with {first!r}"
    return _read_node(tokens)


def scans(plan: Node) -> list[Scan]:
    """Every access to a table in the plan, its subplans and its common table expressions."""
    tables = [entry for entry in plan.children("rtable") if entry.kind == "RANGETBLENTRY"]
    return [
        _scan(node, tables)
        for part in ("planTree", "subplans")
        for top in plan.children(part)
        for node in top.walk()
        if node.kind in TABLE_SCANS | INDEX_SCANS
    ]


def _scan(node: Node, tables: list[Node]) -> Scan:
    table = int(tables[int(node.word("scanrelid")) - 1].word("relid"))
    if node.kind in TABLE_SCANS:
        return Scan(node.kind, table, None, conditioned=False)
    return Scan(node.kind, table, int(node.word("indexid")), conditioned=any(node.children("indexqual")))


def _nodes(values: list[Node | str]) -> Iterator[Node]:
    for value in values:
        if isinstance(value, Node):
            if value.kind:
                yield value
            else:
                yield from value.children()


def _read_node(tokens: Iterator[str]) -> Node:
    """A node whose opening brace was read already."""
    kind = next(tokens)
    fields: dict[str, list[Node | str]] = {}
    values: list[Node | str] = []
    for token in tokens:
        match token:
            case "}":
                return Node(kind, fields)
            case "{":
                values.append(_read_node(tokens))
            case "(":
                values.append(_read_list(tokens))
            case _ if token.startswith(":") and len(token) > 1:
                fields[token[1:]] = values = []
            case _:
                values.append(token)
    raise AssertionError(f"the node {kind} has no end")


def _read_list(tokens: Iterator[str]) -> Node:
    values: list[Node | str] = []
    for token in tokens:
        match token:
            case ")":
                return Node("", {"": values})
            case "{":
                values.append(_read_node(tokens))
            case "(":
                values.append(_read_list(tokens))
            case _:
                values.append(token)
    raise AssertionError("a list has no end")

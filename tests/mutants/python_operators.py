"""What can be wrong in a function of Python: each operator says what stands in a place instead."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import short

FLIPPED: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
OTHERWISE: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Div(),
    ast.Div: ast.Mult(),
}
OTHER_END = {"min": "max", "max": "min"}
# A text tells what is decided already, an assertion what cannot happen.
LEFT_ALONE = (ast.JoinedStr, ast.Assert, ast.pattern, ast.arguments)
PLAIN_TESTS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Await)
Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Place:
    """A node, whatever it is a part of, and the lines of the statement that it is in."""

    node: ast.AST
    parent: ast.AST
    lines: range


@dataclass(frozen=True)
class PythonMutant:
    """A module with one thing wrong in it. The name is the same as long as that place is."""

    path: Path
    function: str
    """As in `Takeover.pauses`."""
    first_line: int
    """Of the function, with its decorators: several may have one name."""
    name: str
    lines: range
    module_text: str
    text: str
    """What stands there instead, with what is around it."""

    @property
    def unit(self) -> str:
        return self.name.partition(": ")[0]


def python_mutants(path: Path, module: str) -> list[PythonMutant]:
    """Of the bodies of all functions; one that is inside another belongs to the outer one."""
    source = path.read_bytes()
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    seen: Counter[str] = Counter()
    made: list[PythonMutant] = []
    for function, definition in _definitions(ast.parse(source)):
        for place in _places(definition):
            for kind, operator in OPERATORS.items():
                for instead in operator(place):
                    start, end = _span(begins, place.node)
                    around = " ".join(source[start:end].decode().split())
                    title = f"{module}.{function}: {kind}: {short(around)} -> {short(instead)}"
                    seen[title] += 1
                    name = title if seen[title] == 1 else f"{title} ({seen[title]})"
                    text = (source[:start] + instead.encode() + source[end:]).decode()
                    first = min([definition.lineno, *(one.lineno for one in definition.decorator_list)])
                    made.append(PythonMutant(path, function, first, name, place.lines, text, instead))
    return made


def _definitions(tree: ast.Module) -> Iterator[tuple[str, Definition]]:
    for node in tree.body:
        if isinstance(node, Definition):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Definition):
                    yield f"{node.name}.{inner.name}", inner


def _places(definition: Definition) -> Iterator[Place]:
    for statement in definition.body:
        yield from _inside(statement, definition, range(0))


def _inside(node: ast.AST, parent: ast.AST, lines: range) -> Iterator[Place]:
    if isinstance(node, LEFT_ALONE):
        return
    if isinstance(node, ast.stmt):
        body = getattr(node, "body", None)
        # Of a block its head alone: who reaches that decides with what is wrong in it.
        lines = range(node.lineno, max(node.lineno, body[0].lineno - 1 if body else node.end_lineno or 0) + 1)
    yield Place(node, parent, lines)
    beside = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    beside += getattr(node, "decorator_list", [])
    for child in ast.iter_child_nodes(node):
        if child not in beside:
            yield from _inside(child, node, lines)


def _span(begins: list[int], node: ast.AST) -> tuple[int, int]:
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return begins[node.lineno - 1] + node.col_offset, begins[node.end_lineno - 1] + node.end_col_offset


def _written(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def drop_operands(place: Place) -> Iterator[str]:
    """`a and b and c` without a, without b, without c; the same for OR."""
    node = place.node
    if isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            rest = [value for number, value in enumerate(node.values) if number != index]
            yield _written(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))


def flip_comparisons(place: Place) -> Iterator[str]:
    node = place.node
    if isinstance(node, ast.Compare):
        for index, sign in enumerate(node.ops):
            signs = [*node.ops[:index], FLIPPED[type(sign)], *node.ops[index + 1 :]]
            yield _written(ast.Compare(node.left, signs, node.comparators))


def drop_negations(place: Place) -> Iterator[str]:
    if isinstance(place.node, ast.UnaryOp) and isinstance(place.node.op, ast.Not):
        yield _written(place.node.operand)


def negate(place: Place) -> Iterator[str]:
    """A test that is a plain value: the other way round."""
    node, parent = place.node, place.parent
    asked = isinstance(parent, ast.If | ast.While | ast.IfExp) and parent.test is node
    sifted = isinstance(parent, ast.comprehension) and node in parent.ifs
    if isinstance(node, PLAIN_TESTS) and (asked or sifted):
        yield f"(not {ast.unparse(node)})"


def change_constants(place: Place) -> Iterator[str]:
    """A number plus one; yes for no."""
    match place.node:
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=(int() | float()) as value):
            yield repr(value + 1)
        case _:
            return


def change_signs(place: Place) -> Iterator[str]:
    """Plus for minus, times for divided by."""
    node = place.node
    if isinstance(node, ast.BinOp) and type(node.op) in OTHERWISE:
        yield _written(ast.BinOp(node.left, OTHERWISE[type(node.op)], node.right))


def change_ends(place: Place) -> Iterator[str]:
    node = place.node
    if isinstance(node, ast.Name) and node.id in OTHER_END:
        yield OTHER_END[node.id]


def drop_statements(place: Place) -> Iterator[str]:
    """A call, a refusal, an early return, a step. Not what gives a name its value: any test would see it."""
    node = place.node
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    early = isinstance(node, ast.Return) and not isinstance(place.parent, Definition)
    if called or early or isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete):
        yield "pass"


OPERATORS: dict[str, Callable[[Place], Iterator[str]]] = {
    "without the operand": drop_operands,
    "flipped": flip_comparisons,
    "without the not": drop_negations,
    "negated": negate,
    "another constant": change_constants,
    "another sign": change_signs,
    "the other end": change_ends,
    "without the statement": drop_statements,
}

"""The tidy test: what a linter does not see, and a stranger would.

Each rule is a function from a text to the lines that break it, and is shown a broken text first: a rule that
sees nothing would keep nothing tidy.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("packages", "bench", "tests", "docs", "examples", "specs", "deploy")
SOURCES = ("packages/", "bench/")
TEXTS = {
    ".py",
    ".sql",
    ".lua",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".json",
    ".tla",
    ".cfg",
    ".html",
    ".css",
    ".sh",
    "",
}


@dataclass(frozen=True)
class Rule:
    """What must not be there, where to look, and a text that breaks it."""

    name: str
    find: Callable[[str], Iterator[int]]
    where: Callable[[Path], bool]
    broken: str
    fine: str


def files() -> list[Path]:
    """Every text of the project that a person wrote."""
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return [
        path
        for path in [*ROOT.glob("*"), *inside]
        if path.is_file()
        and path.suffix in TEXTS
        and not any(p.startswith((".", "__py")) for p in path.parts)
    ]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_matching(pattern: str) -> Callable[[str], Iterator[int]]:
    compiled = re.compile(pattern)

    def find(text: str) -> Iterator[int]:
        return (number for number, line in enumerate(text.splitlines(), 1) if compiled.search(line))

    return find


SENDERS = {
    "execute",
    "executemany",
    "exec_driver_sql",
    "fetch",
    "fetchrow",
    "fetchval",
    "SQL",
    "Call",
    "text",
}


def sql_by_formatting(text: str) -> Iterator[int]:
    """Statements put together from values: names belong into psycopg.sql, values into the arguments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args and called_name(node) in SENDERS:
            statement = node.args[0]
            if is_formatted(statement):
                yield statement.lineno


def called_name(node: ast.Call) -> str:
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def is_formatted(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr(values=values):
            return any(isinstance(value, ast.FormattedValue) for value in values)
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
            return True
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            return is_formatted(left) or is_formatted(right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format")):
            return True
        case _:
            return False


def prints(text: str) -> Iterator[int]:
    if "print(" not in text:
        return  # Most files: they need not be parsed.
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield node.lineno


def undocumented(text: str) -> Iterator[int]:
    if not text.startswith('"""') and ast.get_docstring(ast.parse(text)) is None:
        yield 1


def dynamic_sql(text: str) -> Iterator[int]:
    """EXECUTE of a text that was put together. A trigger's EXECUTE FUNCTION and a grant are not meant."""
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("--")[0].lower()
        if re.search(r"(?<!grant )(?<!revoke )\bexecute\b(?! function| procedure| on\b)", code):
            yield number


def functions_without_header(text: str) -> Iterator[int]:
    """A function that others may call says what it promises, in a comment right above it."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        match = re.match(r"create or replace function fencepost\.(\w+)", line)
        if match and not match[1].startswith("_") and not (number > 1 and lines[number - 2].startswith("--")):
            yield number


def is_python(path: Path) -> bool:
    return path.suffix == ".py"


def is_source(path: Path) -> bool:
    return is_python(path) and relative(path).startswith(SOURCES) and path.name != "hatch_build.py"


def is_product(path: Path) -> bool:
    return is_python(path) and relative(path).startswith((*SOURCES, "examples/"))


def is_function_file(path: Path) -> bool:
    return (
        path.suffix == ".sql" and path.parent.name == "functions" and relative(path).startswith("packages/")
    )


def is_not_this(path: Path) -> bool:
    """This file names what it forbids."""
    return path != Path(__file__)


RULES = (
    Rule(
        "unfinished work",
        lines_matching(r"\b(TODO|FIXME|XXX|HACK)\b"),
        is_not_this,
        broken="x = 1  # TODO: later",
        fine="to do is to be",
    ),
    Rule(
        "a path of one machine",
        lines_matching(r"(?<![\w.])/(work|root|home/\w+|Users/\w+|opt/\w+)/"),
        is_not_this,
        broken="see /home/me/notes",
        fine="https://host/work/ and tests/work/",
    ),
    Rule(
        "a package registry",
        lines_matching(
            r"(?i)(index-url|find-links)\s*=|https?://[\w.-]*(pypi|pythonhosted|npmjs|artifactory|nexus|devpi)"
        ),
        is_not_this,
        broken="--extra-index-url = https://mirror/simple",
        fine="from PyPI, with hashes",
    ),
    Rule(
        "trailing whitespace",
        lines_matching(r"[ \t]+$"),
        lambda path: True,
        broken="x = 1 \n",
        fine="x = 1\n",
    ),
    Rule(
        "SQL by formatting",
        sql_by_formatting,
        is_python,
        broken='c.execute(f"select {x}")',
        fine='c.execute(f"select 1", (x,)); log(f"{x}")',
    ),
    Rule(
        "a logger that prints to stdout",
        lines_matching(r"structlog\.(get_logger|getLogger)\("),
        is_source,
        broken="_log = structlog.get_logger(__name__)",
        fine="_log = get_logger(__name__)  # of fencepost.logs",
    ),
    Rule(
        # In Python 3.11 it forgets a cancel that comes together with the answer.
        "a wait that may forget a cancel",
        lines_matching(r"\basyncio\.wait_for\("),
        is_source,
        broken="await asyncio.wait_for(event.wait(), 1)",
        fine="async with asyncio.timeout(1):",
    ),
    Rule("a print", prints, is_source, broken="print(1)", fine="report.print(1)"),
    Rule("no docstring", undocumented, is_product, broken="x = 1", fine='"""It is one."""\nx = 1'),
    Rule(
        "dynamic SQL",
        dynamic_sql,
        is_function_file,
        broken="  execute format('drop table %I', t);",
        fine="grant execute on function f() to x; -- no execute here\nfor each row execute function f();",
    ),
    Rule(
        "a function without a header",
        functions_without_header,
        is_function_file,
        broken="\ncreate or replace function fencepost.lease_fence(p text)",
        fine="-- The fence.\ncreate or replace function fencepost.lease_fence(p text)"
        "\n\ncreate or replace function fencepost._inner()",
    ),
)
BY_NAME = {rule.name: rule for rule in RULES}


@pytest.mark.parametrize("name", BY_NAME)
def test_the_rule_sees_what_it_forbids_and_nothing_else(name: str) -> None:
    rule = BY_NAME[name]

    assert list(rule.find(rule.broken)) != []
    assert list(rule.find(rule.fine)) == []


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_breaks_the_rule(name: str) -> None:
    rule = BY_NAME[name]
    found = [
        f"{relative(path)}:{line}"
        for path in files()
        if rule.where(path)
        for line in rule.find(path.read_text(encoding="utf-8"))
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        'c.execute("select %s" % x)',
        'c.execute("select {}".format(x))',
        'c.execute("select " + f"{x}")',
        'sql.SQL(f"{x}")',
        'connection.exec_driver_sql(f"select {x}")',
        'Call(f"select {x}", (), nothing)',
    ],
)
def test_every_way_to_format_sql_is_seen(code: str) -> None:
    assert list(sql_by_formatting(code)) == [1]


def test_every_package_of_the_source_is_one() -> None:
    """A folder of Python files has an __init__, whose docstring says what the folder is for."""
    folders = {path.parent for path in files() if is_source(path)}

    assert [relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_the_look_reaches_every_kind_of_file() -> None:
    seen = {relative(path) for path in files()}

    assert {"README.md", "Makefile", "pyproject.toml", "packages/fencepost/src/fencepost/__init__.py"} <= seen
    assert {"packages/fencepost/src/fencepost/kernel/functions/lease.sql", "tests/unit/test_tidy.py"} <= seen
    assert not any(name.startswith(".venv") for name in seen)

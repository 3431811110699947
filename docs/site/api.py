"""The pages of the API: signatures and docstrings of the public modules, read from their source.

Signatures come from the syntax tree and not from the objects, so that they read as they are written, with the
names of types and defaults, and the same on every version of Python.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fencepost.plugin import load

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Applications": (
        "fencepost",
        "fencepost.client",
        "fencepost.contrib.django",
        "fencepost.contrib.fastapi",
        "fencepost.contrib.flask",
        "fencepost.embedded",
        "fencepost.flows",
        "fencepost.flows.sinks.buckets",
        "fencepost.flows.sinks.dbapi",
        "fencepost.flows.sinks.external_postgres",
        "fencepost.flows.sinks.files",
        "fencepost.flows.sinks.http",
        "fencepost.flows.sinks.jobs",
        "fencepost.flows.sinks.kafka",
        "fencepost.flows.sinks.postgres",
        "fencepost.flows.sinks.redis",
        "fencepost.flows.sinks.two_phase_postgres",
        "fencepost.flows.sources.files",
        "fencepost.flows.sources.http",
        "fencepost.flows.sources.kafka",
        "fencepost.flows.sources.outbox",
        "fencepost.flows.sources.postgres",
        "fencepost.flows.sources.postgres_changes",
        "fencepost.flows.sources.redis_streams",
        "fencepost.http_client",
        "fencepost.server_addresses",
        "fencepost.settings",
        "fencepost.webhooks",
        "fencepost.webhooks.receiver",
    ),
    "Kernel calls": (
        "fencepost.kernel.call",
        "fencepost.kernel.dead_letter",
        "fencepost.kernel.eviction",
        "fencepost.kernel.idempotency",
        "fencepost.kernel.job",
        "fencepost.kernel.job_queries",
        "fencepost.kernel.lease",
        "fencepost.kernel.migrate",
        "fencepost.kernel.outbox",
        "fencepost.kernel.queue",
        "fencepost.kernel.rate",
        "fencepost.kernel.schedule",
        "fencepost.kernel.worker",
    ),
    "Tests": (
        "fencepost.crashpoints",
        "fencepost.signals",
        "fencepost.testing",
        "fencepost_nonces.testing.anvil",
        "fencepost_orders.testing.broker",
        "fencepost_orders.testing.broker_faults",
        "fencepost_torture.cluster",
        "fencepost_torture.kit",
    ),
    "Services": (
        "fencepost.layered_settings",
        "fencepost.loop",
        "fencepost.metrics",
        "fencepost.plugin",
        "fencepost_nonces.node",
        "fencepost_nonces.signer",
        "fencepost_orders.broker",
        "fencepost_orders.brokers",
        "fencepost_orders.http_broker",
        "fencepost_orders.http_rules",
        "fencepost_orders.operator_calls",
        "fencepost_orders.request",
        "fencepost_orders.service",
        "fencepost_players.catalog",
        "fencepost_players.distributor",
        "fencepost_players.mutations.errors",
        "fencepost_players.mutations.metrics",
        "fencepost_players.mutations.pipeline",
        "fencepost_players.mutations.planning",
        "fencepost_players.mutations.settings",
        "fencepost_players.mutations.store",
        "fencepost_players.requests",
        "fencepost_players.service",
        "fencepost_server.web.http_service",
    ),
}
"""What a program may import, by what it is for. Other modules are ours to change."""
MODULES = tuple(name for names in GROUPS.values() for name in names)
REACHED: Mapping[str, tuple[str, ...]] = {
    "fencepost.client": (
        "fencepost.client._jobs:Jobs",
        "fencepost.client._leases:Leases",
        "fencepost.client._idempotency:Idempotency",
        "fencepost.client._outbox:Outbox",
        "fencepost.client._schedules:ScheduleControl",
        "fencepost.client._flows:Flows",
        "fencepost.workflows._events:Events",
    ),
}
"""Classes that a program uses and does not import: `fp.jobs`, `fp.leases` and so on."""
CALLED = ("def ", "async def ", "with ", "async with ")
CLASS_NOISE = frozenset({"Generic", "Protocol", "object"})


@dataclass(slots=True)
class Member:
    """A method, property or field of a class."""

    name: str
    signatures: list[str]
    text: str


@dataclass(slots=True)
class Entry:
    """A public name of a module."""

    name: str
    signature: str
    text: str
    members: list[Member] = field(default_factory=list[Member])


def pages() -> dict[str, str]:
    index = [
        "# API",
        "",
        "What a program may import; a module or a name that is not here may change at any time.",
        "",
    ]
    made: dict[str, str] = {}
    for heading, names in GROUPS.items():
        index += [f"## {heading}", ""]
        for name in names:
            module = importlib.import_module(name)
            file = name.replace(".", "-").replace("_", "-") + ".md"
            made[f"api/{file}"] = _page(module)
            index.append(f"- [{name}]({file}): {_first(inspect.getdoc(module) or '')}")
        index.append("")
    return {"api/README.md": "\n".join(index), **made}


def entries(module: ModuleType) -> list[Entry]:
    """The public names of a module: its export list, or what it defines itself."""
    names: list[str] = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    reached: list[type] = [load(reference) for reference in REACHED.get(module.__name__, ())]
    return [
        *(_entry(name, getattr(module, name)) for name in names),
        *(_entry(cls.__name__, cls) for cls in reached),
    ]


def undocumented(module: ModuleType) -> Iterator[str]:
    """Public names, and their public methods and properties, whose purpose no docstring tells."""
    for entry in entries(module):
        if not entry.text:
            yield entry.name
        for member in entry.members:
            if not member.text and any(one.startswith(CALLED) for one in member.signatures):
                yield f"{entry.name}.{member.name}"


def _page(module: ModuleType) -> str:
    lines = [f"# {module.__name__}", "", _prose(inspect.getdoc(module) or "")]
    for entry in entries(module):
        lines += ["", f"## {entry.name}", "", *_code(entry.signature)]
        if entry.text:
            lines += ["", _prose(entry.text)]
        for member in entry.members:
            lines += ["", f"**{entry.name}.{member.name}**", "", *_code(*member.signatures)]
            if member.text:
                lines += ["", _prose(member.text)]
    return "\n".join(lines) + "\n"


def _code(*lines: str) -> list[str]:
    return ["```python", *lines, "```"]


def _prose(text: str) -> str:
    """A docstring as Markdown: a drawing that begins in the first column of its paragraph is kept as code."""
    return "\n\n".join(
        f"```text\n{part}\n```" if _is_drawing(part) else part
        for part in inspect.cleandoc(text).split("\n\n")
    )


def _is_drawing(paragraph: str) -> bool:
    return any(mark in paragraph for mark in ("├──", "└──", "@payments.")) and not paragraph.startswith(
        "    "
    )


def _first(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


def _entry(name: str, value: Any) -> Entry:
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value):
        return Entry(name, _class_line(value), text, list(_members(value)))
    if inspect.isfunction(value):
        node = _function_node(value)
        return Entry(name, _signature(node, has_self=False), text)
    # A constant or a type alias: its own text is that of its class, which says nothing about it.
    shown = repr(value)
    return Entry(name, f"{name} = {shown}" if len(shown) < 80 else name, "A constant or a type.")


def _function_node(value: Any) -> ast.FunctionDef | ast.AsyncFunctionDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(value))))
    node = tree.body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _class_node(cls: type) -> ast.ClassDef:
    """From its module's tree, which is read once: `inspect.getsource` reads the file for each class."""
    return _classes(inspect.getsourcefile(cls) or "")[cls.__qualname__]


@cache
def _classes(file: str) -> Mapping[str, ast.ClassDef]:
    """The classes at the top of a file, and those inside them."""
    found: dict[str, ast.ClassDef] = {}
    waiting: list[tuple[str, ast.Module | ast.ClassDef]] = [
        ("", ast.parse(Path(file).read_text(encoding="utf-8")))
    ]
    while waiting:
        prefix, tree = waiting.pop()
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found[f"{prefix}{node.name}"] = node
                waiting.append((f"{prefix}{node.name}.", node))
    return found


def _class_line(cls: type) -> str:
    node = _class_node(cls)
    bases = [ast.unparse(base) for base in node.bases if ast.unparse(base).split("[")[0] not in CLASS_NOISE]
    kinds = [ast.unparse(mark) for mark in node.decorator_list if "dataclass" in ast.unparse(mark)]
    line = f"class {cls.__name__}" + (f"({', '.join(bases)})" if bases else "")
    return "\n".join([*(f"@{kind}" for kind in kinds), line])


def _members(cls: type) -> Iterator[Member]:
    """Those of the class and of our own classes that it derives from, each once, the nearest first."""
    found: dict[str, Member] = {}
    for base in cls.__mro__:
        if not base.__module__.startswith("fencepost"):
            continue
        here: dict[str, Member] = {}
        for member in _own(_class_node(base)):
            if member.name in here:
                here[member.name].signatures += member.signatures
                here[member.name].text = member.text or here[member.name].text
            else:
                here[member.name] = member
        for name, member in here.items():
            if name in found:
                found[name].text = found[name].text or member.text
            else:
                found[name] = member
    yield from found.values()


def _own(node: ast.ClassDef) -> Iterator[Member]:
    is_enum = any("Enum" in ast.unparse(base) for base in node.bases)
    for place, one in enumerate(node.body):
        following = node.body[place + 1] if place + 1 < len(node.body) else None
        match one:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                marks = [ast.unparse(mark) for mark in one.decorator_list]
                if (name.startswith("_") and name != "__init__") or any(
                    mark.endswith(".setter") for mark in marks
                ):
                    continue
                if name == "__init__":
                    if len(one.args.args) + len(one.args.kwonlyargs) > 1:
                        yield Member(name, [_signature(one)], ast.get_docstring(one) or "Makes one.")
                elif "property" in marks or "cached_property" in marks:
                    told = f": {ast.unparse(one.returns)}" if one.returns else ""
                    yield Member(name, [f"def {name}{told}  # a property"], ast.get_docstring(one) or "")
                else:
                    is_bare = "overload" in marks
                    yield Member(
                        name, [_signature(one, marks=marks)], "" if is_bare else ast.get_docstring(one) or ""
                    )
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield Member(name, [_field(one)], _text(following))
            case ast.Assign(targets=[ast.Name(id=name)]) if is_enum and not name.startswith("_"):
                yield Member(name, [ast.unparse(one)], _text(following))
            case _:
                pass


def _text(node: ast.stmt | None) -> str:
    """The text below a field."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
        case _:
            return ""


def _field(node: ast.AnnAssign) -> str:
    value = f" = {ast.unparse(node.value)}" if node.value is not None else ""
    return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}{value}"


def _signature(
    node: ast.FunctionDef | ast.AsyncFunctionDef, *, marks: list[str] | None = None, has_self: bool = True
) -> str:
    marks = marks or []
    arguments = ast.unparse(node.args)
    if has_self and "staticmethod" not in marks:
        arguments = arguments.partition(", ")[2] if ", " in arguments else ""
        arguments = arguments.removeprefix("/, ").removeprefix("/")
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    if "context" in marks or any(mark.endswith("contextmanager") for mark in marks):
        kind = "async with" if isinstance(node, ast.AsyncFunctionDef) else "with"
    answers = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return _wrapped(kind, node.name, arguments, answers)


def _wrapped(kind: str, name: str, arguments: str, answers: str) -> str:
    line = f"{kind} {name}({arguments}){answers}"
    if len(line) <= 110:
        return line
    parts = [ast.unparse(one) if isinstance(one, ast.AST) else one for one in _split(arguments)]
    return "\n".join([f"{kind} {name}(", *(f"    {part}," for part in parts), f"){answers}"])


def _split(arguments: str) -> list[str]:
    """At the commas that are in no bracket and no text."""
    parts, depth, quote, start = list[str](), 0, "", 0
    for place, character in enumerate(arguments):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(arguments[start:place].strip())
            start = place + 1
    return [*parts, arguments[start:].strip()]

"""Writes the catalogue of the console's words, `web/words/en.json`: messages of templates, Python, scripts.

A translation is a copy of it beside it, `de.json` for example, with other values; `CONSOLE_WORDS` names a
folder with more.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, nodes

from fencepost_server.web.words import TemplateWords, script_messages, template_messages

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / "packages"
CATALOGUE = PACKAGES / "fencepost-server/src/fencepost_server/web/words/en.json"
FOLDERS = ("fencepost-server", "fencepost-orders", "fencepost-players", "fencepost-nonces")
MACROS = {
    "button": (1,),
    "empty": (2,),
    "selection": (1,),
    "field": (1,),
    "select": (1, 2),
    "cut": (2,),
    "chosen": (2,),
    "state": (0,),
}
"""The arguments of macros that are shown."""
LABELLED = {"heads", "selection"}
"""Macros with a list of tuples whose second part is shown."""
SPOKEN = {
    "Confirmation",
    "ActionDone",
    "Comparison",
    "InvalidInput",
    "NotFound",
    "HTTPException",
    "TooSlow",
    "ServerUnavailable",
    "Choice",
    "draw",
}
"""Calls whose texts are shown."""
STATED = ("STATES", "MISSED", "DONE_WORDS")
"""Tuples of words of the database that are shown."""
_SENTENCE = re.compile(r"[A-Z][^\n]*[.?…:]")


def messages() -> dict[str, str]:
    """Every message, in the order of the alphabet."""
    found = {message for message in _all() if re.search(r"[^\W\d_]", message) and not message.startswith("/")}
    return {message: message for message in sorted(found)}


def _all() -> Iterator[str]:
    for folder in FOLDERS:
        source = PACKAGES / folder / "src"
        for path in sorted(source.rglob("*.html")):
            yield from _of_template(path.read_text("utf-8"))
        for path in sorted(source.rglob("*.js")):
            yield from script_messages(path.read_text("utf-8"))
        for path in sorted(source.rglob("*.py")):
            if path.parent.name in ("console", "web") or path.name == "_console_pages.py":
                yield from _of_module(ast.parse(path.read_text("utf-8")))


def _of_template(source: str) -> Iterator[str]:
    yield from template_messages(source)
    environment = Environment(extensions=[TemplateWords], autoescape=True)
    for call in environment.parse(source).find_all(nodes.Call):
        name = call.node.attr if isinstance(call.node, nodes.Getattr) else getattr(call.node, "name", "")
        places = (0,) if name == "say" else MACROS.get(name, ())
        for place in places:
            if place < len(call.args):
                yield from _constants(call.args[place])
        if name in LABELLED:
            for row in call.find_all(nodes.Tuple):
                if len(row.items) == 3:
                    yield from _constants(row.items[1])


def _constants(node: nodes.Node) -> Iterator[str]:
    """The texts that an expression may become: what it compares with is none."""
    if isinstance(node, nodes.Const):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, nodes.CondExpr):
        yield from _constants(node.expr1)
        if node.expr2 is not None:
            yield from _constants(node.expr2)
    elif isinstance(node, nodes.Dict):
        for pair in node.items:
            yield from _constants(pair.value)
    elif isinstance(node, nodes.List | nodes.Tuple):
        for item in node.items:
            yield from _constants(item)
    elif isinstance(node, nodes.Or | nodes.And):
        yield from _constants(node.left)
        yield from _constants(node.right)
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        yield from _constants(node.node.node)
    elif isinstance(node, nodes.Getitem):
        yield from _constants(node.node)


def _of_module(module: ast.Module) -> Iterator[str]:
    documented = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    documented |= {
        id(one.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        for one in node.keywords
        if one.arg == "description"
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.FunctionDef) and node.name == "_describe_need":
            answers = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
            firsts = [one.elts[0] for one in answers if isinstance(one, ast.Tuple)]
            yield from (str(one.value) for one in firsts if isinstance(one, ast.Constant))
        elif isinstance(node, ast.Constant) and id(node) not in documented:
            yield from [str(node.value)] if _SENTENCE.fullmatch(str(node.value)) else []
    for node in module.body:
        named = node.target if isinstance(node, ast.AnnAssign) else None
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.value, ast.Dict)
            and "_UNDECIDED" in ast.dump(node.target)
        ):
            yield from (str(one.value) for one in node.value.values if isinstance(one, ast.Constant))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in STATED:
            yield from (str(one.value) for one in ast.walk(node.value) if isinstance(one, ast.Constant))
        if isinstance(named, ast.Name) and named.id == "NAVIGATION":
            yield from (
                one.value
                for one in ast.walk(node)
                if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value[:1].isupper()
            )


def _of_call(call: ast.Call) -> Iterator[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    keywords = {one.arg: one.value.value for one in call.keywords if isinstance(one.value, ast.Constant)}
    if name == "say" or (name == "of" and texts):
        yield from texts[:1]
    elif name == "counted" and texts:
        yield from _forms(*texts)
    elif name == "page" and len(texts) == 3:
        yield texts[2]
    elif name == "BulkActions":
        yield from _forms(str(keywords["one"]), str(keywords["many"]))
    elif name == "ConsolePages":
        yield str(keywords["title"])
    elif name == "asked":
        yield from texts
    elif name in SPOKEN:
        yield from texts
        yield from (str(keywords[one]) for one in ("verb", "done", "consequence") if one in keywords)


def _forms(one: str, many: str | None = None) -> Sequence[str]:
    return (f"{{count}} {one}", f"{{count}} {many or one + 's'}")


def translations() -> list[Path]:
    """The languages that are included."""
    return sorted(path for path in CATALOGUE.parent.glob("*.json") if path != CATALOGUE)


def written(catalogue: dict[str, str]) -> str:
    """The file's text."""
    return json.dumps(catalogue, ensure_ascii=False, indent=1) + "\n"


def main() -> int:
    known = messages()
    CATALOGUE.write_text(written(known), "utf-8")
    sys.stdout.write(f"{CATALOGUE.relative_to(ROOT)}: {len(known)} messages\n")
    for path in translations():
        translated = json.loads(path.read_text("utf-8"))
        sys.stdout.write(f"{path.name}: {len(translated)} translated, the others are shown in English\n")
        for message in sorted(translated.keys() - known.keys()):
            sys.stdout.write(f"{path.name}: no page shows {message!r} any more\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

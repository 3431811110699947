"""Pages that are written from code name all that the code has, and nothing public lacks a docstring."""

import ast
import importlib
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.site import api, commands, errors, index, settings, sql
from docs.site.references import differing, indexes
from fencepost.errors import REFUSALS
from fencepost.layered_settings import LayeredSettings, readers
from fencepost.plugin import OWN_COMMANDS, load, plugins

ROOT = Path(__file__).parents[3]
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

PACKAGES = tuple(path.name for path in (ROOT / "packages").glob("*/src/fencepost*"))
IS_PROGRAM = frozenset({"fencepost.cli.demo.application"})
"""What a worker runs: importing it opens a client, which needs a database."""


def importable() -> Iterator[str]:
    """Every module without an underscore in its name."""
    for package in PACKAGES:
        yield package
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not any(part.startswith("_") for part in found.name.split(".")):
                yield found.name


@pytest.mark.parametrize("name", sorted({*importable()} - IS_PROGRAM))
def test_nothing_public_lacks_a_docstring(name: str) -> None:
    module = importlib.import_module(name)

    assert module.__doc__
    assert list(api.undocumented(module)) == []


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import from our packages."""
    for node in ast.walk(ast.parse(textwrap.dedent(text))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fencepost"):
            yield from ((node.module or "", alias.name) for alias in node.names)


def shown() -> Iterator[str]:
    """The programs of the pages and of the examples."""
    for folder in ("tutorial", "how-to", "reference"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            yield from CODE.findall(page.read_text())
    yield from (path.read_text() for path in (ROOT / "examples").rglob("*.py"))


def test_what_a_page_imports_is_in_the_reference() -> None:
    known = {
        (name, entry.name) for name in api.MODULES for entry in api.entries(importlib.import_module(name))
    }
    missing = {
        (module, name)
        for text in shown()
        for module, name in imported(text)
        if (module, name) not in known and f"{module}.{name}" not in api.MODULES
    }

    assert missing == set()


def test_a_public_method_without_a_docstring_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fencepost_planted.py").write_text(PLANTED)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    assert list(api.undocumented(importlib.import_module("fencepost_planted"))) == ["Planted.silent"]


PLANTED = '''
class Planted:
    """Has a method that says what it does, and one that does not."""

    def told(self) -> None:
        """Does nothing."""

    def silent(self) -> None: ...
'''


def test_a_signature_reads_as_it_is_written() -> None:
    page = api.pages()["api/fencepost-client.md"]

    assert "async def acquire(resource: str, *, ttl: Duration, owner: str | None=None) -> Lease" in page


def test_the_index_of_each_folder_lists_its_pages() -> None:
    assert differing(indexes()) == [], "Run: make references"


def test_a_page_that_an_index_lacks_is_seen(tmp_path: Path) -> None:
    for folder in index.FOLDERS:
        (tmp_path / folder).mkdir()
    (tmp_path / "how-to/jobs-new.md").write_text("# Something new\n")

    assert "## Jobs\n\n- [Something new](jobs-new.md)\n" in index.pages(tmp_path)["how-to/README.md"]


def test_every_command_is_described() -> None:
    page = commands.page()
    for name in [*OWN_COMMANDS, *(name for plugin in plugins().values() for name in plugin.commands)]:
        assert f"\n### fencepost {name}\n" in page


def test_every_setting_is_listed_with_its_key() -> None:
    page = settings.page()
    for reader in readers():
        cls: type[LayeredSettings] = load(reader)
        for source in cls.sources().values():
            assert f"| `{source.env}` | `{source.file}` |" in page


def test_every_reason_is_listed() -> None:
    page = errors.page()
    for reason, refusal in REFUSALS.items():
        assert f"| {refusal.sqlstate} | `{reason}` | `{refusal.__name__}` |" in page


def test_every_sql_function_has_its_arguments_and_its_header() -> None:
    for path in sql.files():
        for function in sql.functions(path.read_text()):
            if "._" not in function.name:
                assert function.signature.startswith(f"{function.name}("), function
                assert function.header, function.name

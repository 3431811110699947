"""Pages that are written from code name all that the code has, and nothing public lacks a docstring."""

import importlib
import sys
from pathlib import Path

import pytest

from docs.site import api, commands, errors, index, settings, sql
from docs.site.references import differing, indexes
from fencepost.errors import REFUSALS
from fencepost.layered_settings import LayeredSettings, readers
from fencepost.plugin import OWN_COMMANDS, load, plugins


@pytest.mark.parametrize("name", api.MODULES)
def test_nothing_public_lacks_a_docstring(name: str) -> None:
    assert list(api.undocumented(importlib.import_module(name))) == []


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

"""What the pages show runs as it stands there."""

import re
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fencepost.flows import IdempotentRecord

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def shop_streams() -> Generator[None]:
    """The tutorial's first block is a file that its second imports."""
    module = ModuleType("shop_streams")
    exec(blocks("tutorial/first-flow.md")[0], module.__dict__)  # noqa: S102
    sys.modules["shop_streams"] = module
    yield
    del sys.modules["shop_streams"]


@pytest.mark.usefixtures("shop_streams")
def test_the_tutorial_counts_what_it_says() -> None:
    exec(blocks("tutorial/first-flow.md")[1], {})  # noqa: S102


def test_the_reference_begins_with_a_graph_that_can_be_built() -> None:
    names: dict[str, object] = {}
    exec(blocks("reference/flows.md")[0], names)  # noqa: S102
    assert "flow" in names


def test_a_function_of_the_reference_keeps_the_id_of_what_it_gets() -> None:
    names: dict[str, Any] = {}
    [shown] = [block for block in blocks("reference/flows.md") if "def doubled" in block]
    exec(shown, names)  # noqa: S102
    assert names["doubled"](IdempotentRecord("m-1", {"amount": 21})) == IdempotentRecord("m-1", 42)


@pytest.mark.parametrize("number", range(len(blocks("reference/flows-time.md"))))
def test_the_page_about_time_answers_what_it_says(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A class is found again by its module.
    module = ModuleType("shown")
    monkeypatch.setitem(sys.modules, "shown", module)
    exec(blocks("reference/flows-time.md")[number], module.__dict__)  # noqa: S102


def test_the_sink_of_the_page_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, sink = ModuleType("ledger"), ModuleType("ledger_sink")
    exec(blocks("how-to/flows-own-sink.md")[0], ledger.__dict__)  # noqa: S102
    monkeypatch.setitem(sys.modules, "ledger", ledger)
    exec(blocks("how-to/flows-own-sink.md")[1], sink.__dict__)  # noqa: S102
    assert not getattr(sink.__dict__["LedgerSink"], "__abstractmethods__", None)


def test_the_kit_does_what_its_reference_shows() -> None:
    exec(blocks("reference/testing.md")[-1], {})  # noqa: S102

"""Every metric of the code is on the reference page, and every metric of the page is in the code."""

import re
from pathlib import Path

import pytest

from docs.site import metrics
from fencepost.flows._metrics import FlowMetrics
from fencepost.jobs._metrics import JobMetrics
from fencepost.metrics import KernelMetrics, MetricDeclaration
from fencepost.retention import RetentionMetrics
from fencepost.workflows._metrics import WorkflowMetrics
from fencepost_judge._metrics import JudgeMetrics
from fencepost_nonces._metrics import NonceMetrics
from fencepost_orders._metrics import OrderMetrics
from fencepost_players.mutations.metrics import MutationMetrics

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/metrics.md"
SETS = {
    KernelMetrics,
    JobMetrics,
    FlowMetrics,
    RetentionMetrics,
    WorkflowMetrics,
    OrderMetrics,
    MutationMetrics,
    NonceMetrics,
    JudgeMetrics,
}


def declarations() -> dict[str, MetricDeclaration]:
    return {
        declared.exported_name: declared for one in metrics.sets() for declared in one.declarations().values()
    }


def collected() -> dict[str, str]:
    """Metrics that are read at a scrape: name and type."""
    return {metrics.exported_name(family): family.type for family in metrics.collected()}


def listed() -> dict[str, set[str]]:
    """Names of the page, and the words of their rows in backticks."""
    return {
        line.split("`")[1]: set(re.findall(r"`(\w+)`", line.split("|")[2]))
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `")
    }


def test_every_set_of_metrics_is_found() -> None:
    assert set(metrics.sets()) >= SETS


def test_the_generated_page_lists_every_metric() -> None:
    page = metrics.page()
    for name in {*declarations(), *collected()}:
        assert f"\n| `{name}` |" in page


def test_the_page_lists_every_metric_and_nothing_else() -> None:
    assert sorted(listed()) == sorted({*declarations(), *collected()})


@pytest.mark.parametrize("name", sorted(declarations()))
def test_the_page_has_the_labels_of(name: str) -> None:
    assert listed()[name] == set(declarations()[name].labels)


@pytest.mark.parametrize("name", sorted(declarations()))
def test_the_page_has_the_type_and_the_meaning_of(name: str) -> None:
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` "))
    declared = declarations()[name]

    assert [cell.strip() for cell in row.strip("|").split("|")][2:] == [declared.type, declared.meaning]


@pytest.mark.parametrize("name", sorted({*declarations(), *collected()}))
def test_a_name_has_our_prefix_and_its_unit(name: str) -> None:
    assert name.startswith("fencepost_")
    assert not name.endswith(("_ms", "_milliseconds", "_minutes"))


@pytest.mark.parametrize("declared", declarations().values(), ids=lambda one: one.exported_name)
def test_a_histogram_says_its_unit_and_a_gauge_is_no_total(declared: MetricDeclaration) -> None:
    if declared.type == "histogram":
        assert declared.name.endswith(("_seconds", "_bytes", "_retries"))
    assert not declared.name.endswith("_total"), "the library adds it to counters, and to nothing else"


@pytest.mark.parametrize(
    "path", sorted([*(ROOT / "deploy").rglob("*.yml"), *(ROOT / "deploy").rglob("*.json")]), ids=str
)
def test_what_watches_reads_metrics_that_exist(path: Path) -> None:
    known = {*declarations(), *collected()}
    endings = ("_bucket", "_count", "_sum")
    for name in set(re.findall(r"\bfencepost_[a-z_]+", path.read_text())) - {"fencepost_test"}:
        plain = next((name.removesuffix(end) for end in endings if name.endswith(end)), name)
        assert name in known or plain in known, f"{name} in {path.name}"

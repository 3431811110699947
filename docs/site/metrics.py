"""The page of metrics: name, labels, type, meaning and buckets of each, from the declarations in the code."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

from prometheus_client import Metric

import fencepost_server._web_service as server
from fencepost.cli._status_metrics import StatusCollector
from fencepost.cli._status_snapshot import StatusSnapshot
from fencepost.metrics import SECONDS, MetricDeclaration, Metrics, MetricSet

NOTHING = StatusSnapshot(datetime.now(UTC), (), (), (), 0, (), ())
INTRODUCTION = """\
Every metric that the code declares, in the order of its declaration. [Metrics](../reference/metrics.md) says
which process has which, and what the labels mean. Buckets are those of `fencepost.metrics.SECONDS` unless the
row names others."""


def sets() -> list[type[MetricSet]]:
    """Those of the installed code: what the server imports declares the rest."""
    assert server.__name__ == "fencepost_server._web_service"
    ours = [one for one in MetricSet.__subclasses__() if one.__module__.startswith("fencepost")]
    return sorted(ours, key=lambda one: (one.__module__.partition(".")[0], one.__name__))


def collected() -> list[Metric]:
    """Metrics that are read at a scrape."""
    metrics = Metrics()
    metrics.watch_pool("service", dict)
    metrics.registry.register(StatusCollector(lambda: NOTHING))
    return list(metrics.registry.collect())


def exported_name(family: Metric) -> str:
    """The name that a scrape shows."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def page() -> str:
    lines = ["# Metrics, all of them", "", INTRODUCTION]
    for one in sets():
        package = one.__module__.partition(".")[0]
        lines += ["", f"## {package}: {one.__name__}", "", (inspect.getdoc(one) or "").split("\n\n")[0], ""]
        lines += ["| metric | labels | type | meaning | buckets |", "|---|---|---|---|---|"]
        lines += map(_row, one.declarations().values())
    lines += ["", "## Read at each scrape", "", "| metric | type | meaning |", "|---|---|---|"]
    lines += [
        f"| `{exported_name(family)}` | {family.type} | {family.documentation} |" for family in collected()
    ]
    return "\n".join(lines) + "\n"


def _row(declared: MetricDeclaration) -> str:
    labels = ", ".join(f"`{label}`" for label in declared.labels)
    has_own = declared.type == "histogram" and declared.buckets != SECONDS
    buckets = ", ".join(f"{bound:g}" for bound in declared.buckets) if has_own else ""
    return f"| `{declared.exported_name}` | {labels} | {declared.type} | {declared.meaning} | {buckets} |"

"""`python -m bench NAME [--quick]`: run one benchmark, or all; `publish NAME…` keeps runs for the pages."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from bench.catalogue import NAMES, benchmark
from bench.publish import publish, write_pages, write_readme
from bench.report import show, write


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and write the report. A goal that was not met is shown and is no error: machines differ."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=[*NAMES, "all", "publish"])
    parser.add_argument("published", nargs="*", metavar="NAME", help="the runs to publish")
    parser.add_argument("--parts", default="", help="of the jobs: some parts of the run, by commas")
    parser.add_argument("--quick", action="store_true", help="under a minute for each, with more noise")
    asked = parser.parse_args(arguments)
    console = Console()
    if asked.name == "publish":
        for path in publish(asked.published):
            console.print(f"kept in {path}", highlight=False)
        write_readme()
        write_pages()
        return 0
    parts = {"parts": asked.parts.split(",")} if asked.parts else {}
    if parts and asked.name != "jobs":
        parser.error("Only the benchmark of the jobs has parts.")
    for name in NAMES if asked.name == "all" else [asked.name]:
        report = benchmark(name)(quick=asked.quick, **parts)
        show(report, console)
        console.print(f"kept in {write(report)}", highlight=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What a compiler prepares: once for each judge, read-only for submissions, never needed for a verdict."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fencepost.metrics import Metrics
from fencepost_judge._judging import Judge
from fencepost_judge._language import find_language, read_spec, read_specs
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._runtime import open_judge
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._store import Store

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")
PAPER = """
name: paper
title: Paper
source: main.paper
extensions: [.paper]
programs:
  sh: {{names: [sh]}}
version: ["{{sh}}", -c, echo 1]
compile:
  - "{{sh}}"
  - -c
  - |
    cp "$KEPT/token" /out/token 2>/dev/null || echo none > /out/token
    if [ -e "$KEPT/token" ] && echo more >> "$KEPT/token"; then echo written > /out/token; fi
run: ["{{sh}}", -c, "cat /app/token"]
env: {{KEPT: "{{prepared}}"}}
needs: toolchain
prepare:
  command: ["{{sh}}", -c, "{command}"]
  for_text: "{for_text}"
"""
TOKEN = "date +%s%N > /out/token"


@asynccontextmanager
async def paper_judge(folder: Path, command: str, for_text: str = "") -> AsyncGenerator[Judge]:
    language = find_language(read_spec("paper.yaml", PAPER.format(command=command, for_text=for_text)))
    assert language is not None
    settings = JudgeSettings(workspace=folder / "workspace", slots=2)
    metrics = JudgeMetrics.on(Metrics())
    async with open_judge(settings, metrics, Store(folder / "store"), languages={"paper": language}) as judge:
        yield judge


async def printed(judge: Judge, text: str = "anything") -> str:
    got = await judge.try_out("paper", {"main.paper": text.encode()}, b"")
    assert got.verdict == "OK", got
    return got.output.strip()


async def test_a_preparation_is_made_once_and_no_submission_writes_to_it(tmp_path: Path) -> None:
    async with paper_judge(tmp_path, TOKEN) as judge:
        together = await asyncio.gather(*(printed(judge) for _ in range(3)))
        later = await printed(judge)

    assert len(together[0]) == 19, "the token of the preparation, which no compilation could change"
    assert {*together, later} == {together[0]}


async def test_only_sources_with_the_text_wait_for_it(tmp_path: Path) -> None:
    async with paper_judge(tmp_path, TOKEN, for_text="all of it") as judge:
        assert await printed(judge, "a part") == "none"
        assert len(await printed(judge, "use all of it")) == 19


async def test_compilations_do_without_a_preparation_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with paper_judge(tmp_path, "echo no space >&2; exit 1") as judge:
        assert await printed(judge) == "none"
        assert await printed(judge) == "none"

    failed = [one for one in caplog.records if "judge_language_not_prepared" in one.getMessage()]
    assert len(failed) == 1, "it is tried once"
    assert "no space" in failed[0].getMessage()


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
async def test_a_program_with_every_header_compiles_with_what_was_prepared(tmp_path: Path) -> None:
    spec = next(one for one in read_specs() if one.name == "cpp")
    # `-H` lists what is included; an exclamation mark is a header that was compiled before.
    language = find_language(spec.model_copy(update={"compile": [*spec.compile, "-H"]}))
    assert language is not None
    settings = JudgeSettings(workspace=tmp_path / "workspace", slots=2)
    metrics, store = JudgeMetrics.on(Metrics()), Store(tmp_path / "store")
    source = b'#include <bits/stdc++.h>\nint main() { std::cout << std::lcm(4, 6) << "\\n"; }\n'
    async with open_judge(settings, metrics, store, languages={"cpp": language}) as judge:
        got = await judge.try_out("cpp", {"main.cpp": source}, None)

    assert got.verdict == "OK"
    assert got.message.startswith("! /data/bits/stdc++.h.gch"), got.message

"""Makes the tests that a package only describes: inputs by its generators, answers by its main solution."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

from fencepost.errors import InvalidInput
from fencepost_judge._judging import Executed, Judge, JudgeFault
from fencepost_judge._problem import Problem
from fencepost_judge._protocol import Verdict
from fencepost_judge._store import Store
from fencepost_judge._validating import VALIDATOR_LIMITS
from fencepost_judge.packages._making import Making, Recipe, with_made
from fencepost_judge.packages._reading import ReadProblem
from fencepost_judge.sandbox._run_spec import Limits

GENERATOR_LIMITS = VALIDATOR_LIMITS.with_(output_kb=262_144, disk_kb=524_288)
TOGETHER = 4
"""Tests made at once, as far as there are boxes."""
PATIENCE = 10
"""The main solution may take this many times the limit: it says what is right, not how fast."""


async def make_tests(judge: Judge, read: ReadProblem, store: Store) -> ReadProblem:
    """The package with all of its tests. Raises InvalidInput when one cannot be made."""
    making = read.making
    if making is None:
        return read
    made: dict[str, str] = {}
    for begin in range(0, len(making.recipes), TOGETHER):
        some = making.recipes[begin : begin + TOGETHER]
        done = await asyncio.gather(*(_made(judge, read.problem, making, one, store) for one in some))
        made |= {name: digest for one in done for name, digest in one.items()}
    problem = with_made(read.problem, made)
    inputs = [replace(one, input=made.get(one.input, one.input)) for one in read.validation.inputs]
    return replace(read, problem=problem, making=None, validation=replace(read.validation, inputs=inputs))


async def _made(
    judge: Judge, problem: Problem, making: Making, recipe: Recipe, store: Store
) -> dict[str, str]:
    """The digests of what one recipe makes, by those in their place."""
    found: dict[str, str] = {}
    given, errors = recipe.input, b""
    if recipe.program is not None:
        spec = making.programs[recipe.program]
        ran = await _well(
            f"The generator {' '.join([recipe.program, *recipe.args])[:200]}",
            judge.execute(spec, recipe.args, recipe.given, limits=GENERATOR_LIMITS, names=("", recipe.file)),
        )
        given, errors = store.put(ran.output), ran.errors
        found[recipe.input] = given
    if recipe.answer is None:
        return found
    if recipe.answers:
        return found | {recipe.answer: store.put(errors)}
    if making.solution is None:
        raise InvalidInput("An answer is missing, and no solution that could write it.", field="tests")
    limits = Limits(
        cpu_ms=problem.bounds.time_ms * PATIENCE,
        wall_ms=problem.bounds.time_ms * PATIENCE * 2 + 2000,
        memory_kb=problem.bounds.memory_kb,
        output_kb=GENERATOR_LIMITS.output_kb,
    )
    names = (problem.input_file, problem.output_file)
    solved = judge.execute(making.solution, (), given, limits=limits, names=names)
    return found | {recipe.answer: store.put((await _well("The main solution", solved)).output)}


async def _well(what: str, running: Awaitable[Executed]) -> Executed:
    """What ended well; anything else is the package's fault, or the machine's."""
    try:
        ran = await running
    except JudgeFault as fault:
        raise InvalidInput(f"The tests cannot be made: {what}: {fault}", field="tests") from None
    outcome = ran.outcome
    if outcome.verdict is Verdict.OK:
        return ran
    how = outcome.sandbox_error or f"exit code {outcome.exit_code}, signal {outcome.exit_signal}"
    said = ran.errors[:300].decode("utf-8", "replace").strip()
    raise InvalidInput(
        f"The tests cannot be made: {what} ended with {outcome.verdict} ({how}). {said}", field="tests"
    )

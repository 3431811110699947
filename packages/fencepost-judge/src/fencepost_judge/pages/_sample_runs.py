"""A program run on every sample at once; and, for juries, one test of a submission run again. Both are custom
runs: nothing is judged."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from fencepost.errors import FencepostError, InvalidInput, NotFound
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _visibility as visibility
from fencepost_judge._access import INPUT_BYTES_MAX, PAGES_ROOT
from fencepost_judge._authentication import Who, author_of
from fencepost_judge._custom_run_api import CustomRunRequest, try_as
from fencepost_judge._difference import difference
from fencepost_judge._problem import Slug
from fencepost_judge._role import JudgeRole
from fencepost_judge._service import Judging
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_judge.pages._problems import show_problem
from fencepost_judge.pages._submit_form import SubmitForm, offered, only_source, sent
from fencepost_server.web.formatting import link
from fencepost_server.web.forms import Id, filled
from fencepost_server.web.templating import HEADERS

SAMPLES_MAX = 10
Name = Annotated[str, Query(max_length=200)]
Runs = Annotated[str, Query(max_length=300, pattern=r"^\d{1,18}(,\d{1,18})*$")]


def add(router: PageRouter) -> None:
    judging = router.judging

    @router.router.post(f"{PAGES_ROOT}/sample-runs")
    async def run_samples(request: Request, who: Who) -> Response:
        """Run the program on the samples. Each run counts against the same allowance as a submission."""
        fields = sent(await form_of(request))
        slug, contest = fields.get("problem_id", ""), fields.get("contest") or None
        try:
            found = await visibility.problem(judging, who, slug)
            samples = (await visibility.samples(judging, found))[:SAMPLES_MAX]
            if not samples:
                raise InvalidInput(
                    "This problem has no samples that a program could be run on.", field="problem"
                )
            wanted = filled(CustomRunRequest, fields)
            runs = [
                await try_as(who, judging, wanted.model_copy(update={"input": one.input})) for one in samples
            ]
        except FencepostError as error:
            bench = {name: fields.get(name, "") for name in ("language", "code", "input")}
            return await show_problem(router, request, slug, {**bench, "contest": contest}, error)
        numbers = ",".join(map(str, runs))
        target = link(f"{PAGES_ROOT}/sample-runs", runs=numbers, problem=slug, contest=contest)
        return RedirectResponse(target, 303, headers=dict(HEADERS))

    @router.router.get(f"{PAGES_ROOT}/sample-runs")
    async def sample_runs(
        request: Request, who: Who, runs: Runs, problem: Slug, contest: Slug | None = None
    ) -> Response:
        numbers = [int(one) for one in runs.split(",")][:SAMPLES_MAX]
        found = await visibility.problem(judging, who, problem)
        samples = await visibility.samples(judging, found)
        outcomes = [await visibility.custom_run(judging, who, number) for number in numbers]
        shown = [
            {
                "sample": sample,
                "outcome": one.outcome,
                "difference": difference(sample.answer, one.outcome["output"]) if one.outcome else [],
            }
            for sample, one in zip(samples, outcomes, strict=False)
        ]
        bench = SubmitForm(
            problem=problem,
            contest=contest,
            language=outcomes[0].language,
            code=only_source(outcomes[0].sources),
            languages=offered(judging, found.problem.languages),
        )
        facts = {
            "runs": shown,
            "bench": bench,
            "is_done": all(one.outcome for one in outcomes),
            "has_validator": found.problem.validator is not None,
        }
        return router.show(request, "sample_runs.html", f"Samples of {found.title}", facts)

    @router.router.post(f"{PAGES_ROOT}/submissions/{{job_id}}/test-runs")
    async def run_test(request: Request, who: Who, job_id: Id) -> Response:
        """Run a submission on the input of one test, for a jury."""
        name = (await form_of(request)).get("test", "")
        task = await _task_of(judging, job_id)
        given, _ = await _texts_of_test(judging, job_id, name)
        run = await judging.custom_runs.submit(
            task.language, task.sources, given, author=author_of(who, None), allowance=None
        )
        target = link(f"{PAGES_ROOT}/submissions/{job_id}/test-runs", run=run, test=name)
        return RedirectResponse(target, 303, headers=dict(HEADERS))

    @router.router.get(f"{PAGES_ROOT}/submissions/{{job_id}}/test-runs")
    async def test_run(request: Request, who: Who, job_id: Id, run: Id, test: Name) -> Response:
        found = await visibility.custom_run(judging, who, run)
        given, answer = await _texts_of_test(judging, job_id, test)
        facts = {
            "submission": job_id,
            "test": test,
            "input": given,
            "answer": answer,
            "outcome": found.outcome,
            "difference": difference(answer, found.outcome["output"]) if found.outcome else [],
            "may_run": who.may(JudgeRole.JURY),
        }
        return router.show(request, "test_run.html", f"{test} of submission {job_id}", facts)


async def _texts_of_test(judging: Judging, job_id: int, name: str) -> tuple[str, str]:
    """The input and the answer of a test, as the submission was judged with it."""
    found = await _task_of(judging, job_id)
    case = next((one for one in found.problem.data.all_cases() if one.name == name), None)
    if case is None:
        raise NotFound(f"Submission {job_id} has no test {name[:100]}.", noun="test", subject=str(job_id))
    if case.static or found.problem.takes_answers:
        raise InvalidInput("This test does not run the program.", field="test")
    if found.problem.interactive:
        raise InvalidInput("A conversation cannot be run without its validator.", field="test")
    given = await asyncio.to_thread(judging.store.get, case.input)
    answer = await asyncio.to_thread(judging.store.get, case.answer)
    if len(given) > INPUT_BYTES_MAX:
        raise InvalidInput(
            f"The input has {len(given)} bytes; a run takes at most {INPUT_BYTES_MAX}.", field="test"
        )
    try:
        text = given.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidInput("The input is no text, and a run takes text.", field="test")
    return text, answer[:INPUT_BYTES_MAX].decode("utf-8", "replace")


async def _task_of(judging: Judging, job_id: int) -> judge_calls.JudgingTask:
    found = await judging.fp.run(judge_calls.get_task(job_id))
    if not found:
        raise NotFound(f"There is no submission {job_id}.", noun="submission", subject=str(job_id))
    return found[0]

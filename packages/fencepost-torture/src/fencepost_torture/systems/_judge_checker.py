"""Compares what the callers of a judge asked and were told with its database and its store."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

from fencepost.testing import Breach
from fencepost_torture._effects import LOST, exactly_once
from fencepost_torture._operation_log import Operation
from fencepost_torture._system_environment import SystemEnvironment

# Every job, every verdict and every finishing write leaves a row when it commits, even if another replaces it
# later.
NOTES: LiteralString = """
    create table job_made (job_id bigint);
    create table finishing (job_id bigint, attempt bigint);
    create index on finishing (job_id);
    create table verdict (job_id bigint, attempt bigint, verdict text, generation bigint);
    create index on verdict (generation);
    create function note_job() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.job_made values (new.job_id);
      return null;
    end $f$;
    create function note_finishing() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.finishing values (new.job_id, new.attempt);
      return null;
    end $f$;
    create function note_verdict() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.verdict values (new.job_id, new.attempt, new.verdict, new.generation);
      return null;
    end $f$;
    create trigger note_job after insert on fencepost.job for each row execute function note_job();
    create trigger note_finishing after insert on fencepost.job_finished
      for each row execute function note_finishing();
    create trigger note_verdict after insert or update on fencepost.judge_result
      for each row execute function note_verdict();
    create trigger note_verdict after insert or update on fencepost.judge_rejudged
      for each row when (new.judged_at is not null) execute function note_verdict();
"""
PROBLEMS: LiteralString = "select slug, spec from fencepost.judge_problem order by slug, version"
SUBMISSIONS: LiteralString = "select job_id, author, slug from fencepost.judge_submission order by job_id"
GENERATIONS: LiteralString = "select generation, reason from fencepost.judge_rejudging order by generation"
REJUDGED: LiteralString = "select job_id, submission_id, generation from fencepost.judge_rejudged"
OTHER_ATTEMPT: LiteralString = """
    select v.job_id, v.attempt, f.attempt from verdict v join finishing f using (job_id)
    where v.attempt <> f.attempt
"""


@dataclass(frozen=True, slots=True)
class SubmittedProgram:
    """A program to submit, and its correct verdict."""

    source: str
    verdict: str


# Without headers, and every other one does not link: compiling is most of the cost of an exam.
DOUBLING = """int scanf(const char *, ...), printf(const char *, ...);
int main(void) { int n; scanf("%d", &n); printf("%d", 2 * n + LATE); }
"""
PROGRAMS = {
    "right": SubmittedProgram(DOUBLING.replace("LATE", "0"), "AC"),
    "wrong": SubmittedProgram(DOUBLING.replace("LATE", "1"), "WA"),
    "broken": SubmittedProgram("int main(", "CE"),
}


@dataclass(frozen=True, slots=True)
class Exam:
    """A unique problem, by its number: its input and its expected output are its own."""

    number: int

    @property
    def slug(self) -> str:
        return f"exam-{self.number}"

    @property
    def programs(self) -> Sequence[str]:
        return "wrong" if self.number % 3 == 0 else "right", "broken"

    @property
    def copies(self) -> int:
        """How often its problem is imported and its programs are submitted at once; each must exist once."""
        return 1 + self.number % 2

    @property
    def data(self) -> tuple[bytes, bytes]:
        """The one test: the input, and the answer."""
        return f"{self.number}\n".encode(), f"{2 * self.number}\n".encode()

    def key(self, program: str) -> str:
        return f"{self.slug}/{program}"

    def place(self, folder: Path) -> Path:
        return folder / "exams" / self.slug

    def write(self, folder: Path) -> None:
        """Write the package that is imported."""
        place = self.place(folder)
        place.mkdir(parents=True, exist_ok=True)
        for suffix, content in zip((".in", ".ans"), self.data, strict=True):
            (place / f"1{suffix}").write_bytes(content)
        # A busy machine must not cause a wrong verdict.
        (place / "problem.yaml").write_text("time_limit: 10\n")


class JudgeChecker:
    """Checks a run that is over. `asked` is what the run knows that it asked for."""

    def __init__(self, env: SystemEnvironment, asked: Sequence[Exam]) -> None:
        self._env = env
        self._asked = asked

    def judge(self) -> Iterator[Breach]:
        operations = self._env.operation_log.operations()
        submitted = self._env.rows(SUBMISSIONS)
        rejudged = self._env.rows(REJUDGED)
        yield from self._imported()
        yield from self._submitted(submitted, operations)
        yield from self._ordered(rejudged, [each for each in operations if each.what == "rejudge"])
        keys = {job_id: key for job_id, key, _ in submitted}
        of_jobs = {**keys, **{job_id: keys[submission] for job_id, submission, _ in rejudged}}
        yield from self._judged(of_jobs)

    def _imported(self) -> Iterator[Breach]:
        """A problem has one version, however often it was imported, and its data is there."""
        found = self._env.rows(PROBLEMS)
        yield from exactly_once((exam.slug for exam in self._asked), (slug for slug, _ in found))
        exams = {exam.slug: exam for exam in self._asked}
        store = self._env.directory / "store"
        for slug, spec in found:
            if slug in exams and not _has_data(spec, exams[slug], store):
                yield Breach("whole problems", slug, "is without its data")

    def _submitted(
        self, submitted: Sequence[tuple[Any, ...]], operations: Iterable[Operation]
    ) -> Iterator[Breach]:
        """One submission for each key, to its own problem; and no caller was told of another."""
        keys = [exam.key(program) for exam in self._asked for program in exam.programs]
        yield from exactly_once(keys, (key for _, key, _ in submitted))
        for _, key, slug in submitted:
            if key.partition("/")[0] != slug:
                yield Breach("its own problem", key, f"was submitted to {slug}")
        jobs = {key: job_id for job_id, key, _ in submitted}
        for each in operations:
            if each.what == "submit" and not each.is_unknown and each.answer != jobs.get(each.subject):
                what = f"was answered {each.answer}, and {jobs.get(each.subject)} is stored"
                yield Breach("as answered", each.subject, what)

    def _ordered(self, rejudged: Sequence[tuple[Any, ...]], orders: Sequence[Operation]) -> Iterator[Breach]:
        """An order is carried out once, or at most once if no caller was told of it; and completely."""
        generations = self._env.rows(GENERATIONS)
        by_reason = {reason: generation for generation, reason in generations}
        times = Counter(reason for _, reason in generations)
        # An order that was never answered may be there or not.
        answered = [each for each in orders if not each.is_unknown]
        unknown = {each.subject for each in orders if each.is_unknown}
        expected = [each.subject for each in answered] + [each for each in unknown if times[each]]
        yield from exactly_once(expected, times.elements())
        members: defaultdict[int, list[int]] = defaultdict(list)
        for _, submission, generation in rejudged:
            members[generation].append(submission)
        for each in orders:
            generation = by_reason.get(each.subject)
            if generation is not None:
                yield from _whole(each, generation, members[generation])
        done = {each.question["exam"] for each in answered}
        for exam in self._asked:
            if exam.number not in done:
                yield Breach(LOST, exam.slug, "was never rejudged")

    def _judged(self, of_jobs: dict[int, str]) -> Iterator[Breach]:
        """One job for each submission and each rejudging, with one correct verdict by its own attempt."""
        jobs = [str(job_id) for job_id in of_jobs]
        for table in ("job_made", "finishing", "verdict"):
            rows = self._env.rows(_JOBS_OF[table])
            for breach in exactly_once(jobs, (str(job_id) for (job_id,) in rows)):
                yield Breach(breach.rule, f"{table} of job {breach.key}", breach.what)
        for job_id, verdict in self._env.rows("select job_id, verdict from verdict"):
            deserved = PROGRAMS[of_jobs[job_id].partition("/")[2]].verdict if job_id in of_jobs else verdict
            if verdict != deserved:
                yield Breach("the right verdict", f"job {job_id}", f"got {verdict} and deserves {deserved}")
        for job_id, verdict, finish in self._env.rows(OTHER_ATTEMPT):
            yield Breach("one attempt", f"job {job_id}", f"was judged by {verdict} and finished by {finish}")


_JOBS_OF: dict[str, LiteralString] = {
    "job_made": "select job_id from job_made",
    "finishing": "select job_id from finishing",
    "verdict": "select job_id from verdict",
}


def _whole(order: Operation, generation: int, members: Sequence[int]) -> Iterator[Breach]:
    wanted = order.question["submissions"]
    if sorted(members) != sorted(wanted):
        yield Breach("all or none", order.subject, f"rejudges {sorted(members)}, not {sorted(wanted)}")
    if not order.is_unknown and order.answer != [generation, len(wanted)]:
        yield Breach("as answered", order.subject, f"was answered {order.answer}, and {generation} is stored")


def _has_data(spec: Any, exam: Exam, store: Path) -> bool:
    """By digests computed here: what the judge says of its data proves nothing."""
    digests = [hashlib.sha256(content).hexdigest() for content in exam.data]
    [case] = spec["data"]["cases"]
    if [case["input"], case["answer"]] != digests:
        return False
    places = [store / digest[:2] / digest for digest in digests]
    return all(
        place.is_file() and place.read_bytes() == content
        for place, content in zip(places, exam.data, strict=True)
    )

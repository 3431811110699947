"""Handlers: what is refused when they are declared, and what their jobs look like."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost import Fencepost, InvalidInput, Job, Rate
from fencepost.jobs._scheduler import Schedules
from fencepost.kernel.rate import Limit
from fencepost.logs import log_context


def doubled(user: int) -> int:
    return user * 2


def both(name: str, user: int) -> str:
    return f"{name}{user}"


def of_nobody(nobody: str) -> str:
    return nobody


@pytest.fixture
def fp() -> Fencepost:
    return Fencepost("postgresql://localhost/never-opened")


def test_a_submission_is_a_value_with_everything_in_it(fp: Fencepost) -> None:
    @fp.job(
        "work", tries=3, lease=5, priority="low", unique="{n}", concurrency_key="u{n}", concurrency_limit=2
    )
    async def one(job: Job, n: int, m: str = "x") -> None: ...

    when = datetime(2030, 1, 1, tzinfo=UTC)
    job = one.options(run_at=when, headers={"tenant": "acme"}).submission(7)
    assert (job.queue, job.kind, job.payload) == ("work", "one", {"n": 7})
    assert (job.options.priority, job.options.tries, job.options.lease_seconds, job.options.run_at) == (
        2,
        3,
        5,
        when,
    )
    assert (job.unique_key, job.concurrency_key, job.concurrency_limit) == ("one:7", "u7", 2)
    assert job.headers["tenant"] == "acme"
    assert "rate_key" not in job.headers


def test_options_do_not_change_the_handler(fp: Fencepost) -> None:
    @fp.job("work")
    async def one(job: Job) -> None: ...

    later = one.options(delay=5, headers={"a": 1})
    both = later.options(priority="urgent", headers={"b": 2})
    assert (one.declared.delay_seconds, dict(one.declared.headers)) == (None, {})
    changed = both.declared
    assert (changed.delay_seconds, changed.priority, dict(changed.headers)) == (5, 0, {"a": 1, "b": 2})
    at = later.options(run_at=datetime(2030, 1, 1, tzinfo=UTC))
    assert at.declared.delay_seconds is None, "the last word about the time counts alone"


@pytest.mark.parametrize(
    ("key", "made"),
    [
        ("user:{user}", "user:7"),
        ("{user}/{name}", "7/ann"),
        ("{name.upper}", None),
        (doubled, "14"),
        (both, "ann7"),
        ("constant", "constant"),
        (lambda: 3, "3"),
    ],
)
def test_a_key_is_made_of_the_arguments_that_it_names(fp: Fencepost, key: Any, made: str | None) -> None:
    @fp.job("work", rate=Rate(1, key=key))
    async def one(job: Job, user: int, name: str, note: str = "") -> None: ...

    header = one.submission(user=7, name="ann").headers["rate_key"]
    assert header == made or (made is None and "upper" in header)


@pytest.mark.parametrize("where", ["unique", "concurrency_key", "rate"])
@pytest.mark.parametrize("key", ["{nobody}", of_nobody])
def test_a_key_that_names_an_argument_that_there_is_not_is_refused(
    fp: Fencepost, where: str, key: Any
) -> None:
    terms: dict[str, Any] = {where: Rate(1, key=key) if where == "rate" else key}

    async def one(job: Job, user: int) -> None: ...

    of_client: Any = fp
    declare = of_client.job("work", **terms)
    with pytest.raises(InvalidInput, match="asks for nobody; the arguments are user") as refused:
        declare(one)
    assert refused.value.field == where


def test_a_signature_that_cannot_be_a_payload_is_refused(fp: Fencepost) -> None:
    async def many(job: Job, *numbers: int) -> None: ...

    with pytest.raises(InvalidInput, match="numbers cannot be a payload"):
        fp.job("work")(many)


def test_two_handlers_of_one_kind_are_refused(fp: Fencepost) -> None:
    async def one(job: Job) -> None: ...

    fp.job("work")(one)
    with pytest.raises(InvalidInput, match="one has a handler already"):
        fp.job("other")(one)


def test_where_a_handler_runs_follows_from_what_it_is(fp: Fencepost) -> None:
    @fp.job("work")
    async def coroutine(job: Job) -> None: ...

    @fp.job("work")
    def function(job: Job) -> None: ...

    assert (coroutine.place, function.place) == ("loop", "thread")


def test_a_payload_is_read_as_strictly_as_it_was_written(fp: Fencepost) -> None:
    @fp.job("work")
    async def one(job: Job, n: int, m: str = "x") -> None: ...

    assert one.parse({"n": 1}) == {"n": 1, "m": "x"}
    for payload, field in (({"n": "one"}, "n"), ({}, "n"), ({"n": 1, "k": 2}, "k"), ([1], "payload")):
        with pytest.raises(InvalidInput) as refused:
            one.parse(payload)
        assert refused.value.field == field


def test_the_trace_of_the_caller_goes_along(fp: Fencepost) -> None:
    @fp.job("work")
    async def one(job: Job) -> None: ...

    with log_context(trace_id="mine"):
        assert one.submission().headers["trace_id"] == "mine"
    assert len(str(one.submission().headers["trace_id"])) == 32


def test_a_rate_says_its_bucket() -> None:
    assert Rate(60, per=60).bucket == Limit(1, 60)
    assert Rate(1, per=10).bucket == Limit(0.1, 1)
    assert Rate(10, burst=2).bucket == Limit(10, 2)


def test_handlers_of_some_queues(fp: Fencepost) -> None:
    @fp.job("mail")
    async def send(job: Job) -> None: ...

    @fp.job("work")
    async def one(job: Job) -> None: ...

    assert [handler.kind for handler in fp.handlers.of(["mail"])] == ["send"]
    with pytest.raises(InvalidInput, match="No handler serves post; there are mail, work"):
        fp.handlers.of(["post"])


def test_a_schedule_that_cannot_fire_is_refused_when_it_is_declared(fp: Fencepost) -> None:
    @fp.job("work")
    async def one(job: Job, n: int) -> None: ...

    with pytest.raises(InvalidInput, match="no cron expression"):
        fp.cron("61 * * * *", arguments={"n": 1})(one)
    with pytest.raises(InvalidInput, match="needs the argument n"):
        fp.every(60)(one)
    fp.every(60, arguments={"n": 1})(one)
    with pytest.raises(InvalidInput, match="give this one another name"):
        fp.every(30, arguments={"n": 2})(one)
    fp.every(30, name="twice", arguments={"n": 2})(one)
    assert [schedule.name for schedule in fp.schedules.declared] == ["one", "twice"]
    assert len(Schedules()) == 0


def test_three_beats_fit_into_the_shortest_lease(fp: Fencepost) -> None:
    @fp.job("work", lease=6)
    async def short(job: Job) -> None: ...

    assert fp.jobs.worker()._settings.heartbeat_seconds == 2  # pyright: ignore[reportPrivateUsage]

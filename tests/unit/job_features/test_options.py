"""The options of jobs: what is refused at the declaration, what one submission changes, and what travels."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from fencepost import Chunk, Fencepost, InvalidInput, Job, Rate, Unique, exponential
from fencepost.jobs._handler import Handler
from fencepost.jobs._options import Overrides
from fencepost.jobs.retry_policy import Bury, Retry


@dataclass
class Line:
    price: float
    note: Any = None


class Thing:
    """Nothing that JSON knows."""


@pytest.fixture
def fp() -> Fencepost:
    return Fencepost("postgresql://localhost/never-opened")


async def handler(job: Job, user: int, name: str = "ann") -> None: ...


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"tries": 0}, "tries", "between 1 and 1000"),
        ({"timeout": -1}, "timeout", "not negative"),
        ({"timeout": 0}, "timeout", "longer than that"),
        ({"lease": math.nan}, "lease", "finite"),
        ({"priority": "high"}, "priority", "one of urgent, normal, low, bulk"),
        ({"retry": 5}, "retry", "it is a policy"),
        ({"tags": "import"}, "tags", "is a list"),
        ({"tags": [""]}, "tags", "1 to 128 bytes"),
        ({"tags": [7]}, "tags", "must be a text"),
        ({"tags": [f"t{n}" for n in range(33)]}, "tags", "at most 32"),
        ({"search_by": ["nobody"]}, "search_by", "asks for nobody; the arguments are user, name"),
        ({"unique": "{nobody}"}, "unique", "asks for nobody"),
        ({"unique": Unique(args=["nobody"])}, "unique", "asks for nobody"),
    ],
)
def test_wrong_options_are_refused_at_the_declaration(
    fp: Fencepost, options: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        cast("Any", fp).job("mail", **options)(handler)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Unique(period=0), "period"),
        (lambda: Unique(period=-1), "period"),
        (lambda: Unique(states=("waiting", "finished")), "period"),
        (lambda: Unique(period=5, states=("waiting", "running")), "period"),
        (lambda: Unique(states=("running",)), "states"),
        (lambda: Unique(states=("waiting", "asleep")), "states"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: Unique(replace=("queue",)), "replace"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: Unique(replace="run_at"), "replace"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: Unique(args="user"), "args"),
        (lambda: Unique("{user}", args=["user"]), "args"),
        (lambda: Unique(args=False, kind=False), "unique"),
    ],
)
def test_unique_terms_that_make_no_sense_are_refused(make: Callable[[], Unique], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert refused.value.field == field


def no_parameter() -> None: ...
def an_argument_first(user: int) -> None: ...
def an_unnamed_first(user) -> None: ...  # type: ignore[no-untyped-def]
def only_by_name(*, job: Job) -> None: ...


NO_JOB: list[Any] = [no_parameter, an_argument_first, an_unnamed_first, only_by_name]


@pytest.mark.parametrize("function", NO_JOB)
def test_a_function_that_takes_no_job_is_refused(fp: Fencepost, function: Any) -> None:
    with pytest.raises(InvalidInput, match=f"{function.__name__} takes no Job") as refused:
        fp.job("mail")(function)
    assert refused.value.field == "job"


def test_a_type_that_is_no_json_is_refused_at_the_declaration(fp: Fencepost) -> None:
    async def takes_a_thing(job: Job, thing: Thing) -> None: ...

    with pytest.raises(InvalidInput, match="takes_a_thing: an argument has a type that is no JSON"):
        fp.job("mail")(takes_a_thing)


def test_the_unknown_and_the_missing_argument_are_named(fp: Fencepost) -> None:
    one = fp.job("mail")(handler)
    with pytest.raises(
        InvalidInput, match="handler has no argument usr; its arguments are user, name"
    ) as refused:
        one.submission(usr=7)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert refused.value.field == "usr"
    with pytest.raises(InvalidInput, match="handler needs the argument user") as refused:
        one.submission(name="bob")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert refused.value.field == "user"
    with pytest.raises(InvalidInput, match="There is no option atempts; there are queue, run_at") as refused:
        one.options(atempts=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert refused.value.field == "atempts"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "value"),
        (math.inf, "value"),
        (b"x", "value"),
        (Thing(), "value"),
        ([1, {"a": [2.0, math.nan]}], "value[1].a[1]"),
        ({"a": {"b": b"\xff"}}, "value.a.b"),
        ([{"thing": Thing()}], "value[0].thing"),
        (Line(1.0, note=[b"x"]), "value.note[0]"),
        (Line(math.nan), "value.price"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_path(fp: Fencepost, value: Any, path: str) -> None:
    @fp.job("mail")
    async def one(job: Job, value: Any) -> None: ...

    with pytest.raises(InvalidInput) as refused:
        one.submission(value=value)
    assert refused.value.field == path
    assert path in str(refused.value)


def test_typed_bytes_and_nan_are_refused_too(fp: Fencepost) -> None:
    @fp.job("mail")
    async def one(job: Job, raw: bytes | None = None, price: float = 0.0) -> None: ...

    with pytest.raises(InvalidInput) as refused:
        one.submission(raw=b"abc")
    assert refused.value.field == "raw"
    with pytest.raises(InvalidInput) as refused:
        one.submission(price=math.nan)
    assert refused.value.field == "price"


def test_headers_that_are_no_json_are_refused_with_their_path(fp: Fencepost) -> None:
    one = fp.job("mail")(handler).options(headers={"a": {"b": [math.nan]}})
    with pytest.raises(InvalidInput, match=r"headers.a.b\[0\] is nan") as refused:
        one.call(user=1)
    assert refused.value.field == "headers.a.b[0]"


def test_a_submission_changes_every_option_of_the_decorator(fp: Fencepost) -> None:
    declared = fp.job(
        "mail", timeout=5, unique="{user}", concurrency_key="{user}", rate=Rate(5, key="{user}")
    )(handler)
    changed = declared.options(
        queue="slow",
        tries=9,
        lease=timedelta(minutes=2),
        timeout=None,
        priority="bulk",
        retry=exponential(first_seconds=7),
        unique=None,
        concurrency_key="{name}",
        concurrency_limit=3,
        rate=Rate(5, key="{name}"),
        tags=("import",),
        search_by=("user",),
    )
    job = changed.submission(user=7)
    assert (job.queue, job.kind, job.unique_key, job.concurrency_key) == ("slow", "handler", None, "ann")
    options = job.options
    assert (options.tries, options.lease_seconds, options.priority, job.concurrency_limit) == (9, 120, 3, 3)
    assert (options.labels.tags, options.labels.search_by) == (("import",), ("user",))
    assert job.headers["rate_key"] == "ann"
    assert declared.submission(user=7).unique_key == "handler:7", "the handler has not changed"
    assert "options" not in declared.submission(user=7).headers, "nothing travels without need"


def test_what_a_submission_changed_of_the_run_travels_with_it(fp: Fencepost) -> None:
    @fp.job("mail", timeout=5)
    def compute(job: Job) -> None: ...

    changed = compute.options(timeout=0.5, retry=exponential(first_seconds=7, jitter=0)).options(
        run_in="thread"
    )
    headers = changed.submission().headers
    running: Handler[...] = compute.running_as(headers)
    assert (running.declared.timeout_seconds, running.place) == (0.5, "thread")
    assert running.declared.retry(1, ValueError()) == Retry(7)
    assert compute.running_as({"trace_id": "1"}) is compute
    assert (
        compute.running_as(compute.options(timeout=None).submission().headers).declared.timeout_seconds
        is None
    )
    with pytest.raises(InvalidInput, match="the header options cannot be read"):
        compute.running_as({"options": {"retry": {"nonsense": 1}}})


def test_what_cannot_travel_is_refused(fp: Fencepost) -> None:
    one = fp.job("mail", rate=Rate(5))(handler)
    with pytest.raises(InvalidInput, match="exponential") as refused:
        one.options(retry=lambda tries, error: Bury())
    assert refused.value.field == "retry"
    with pytest.raises(InvalidInput, match="not another limit") as refused:
        one.options(rate=Rate(6))
    assert refused.value.field == "rate"
    with pytest.raises(InvalidInput, match="coroutine function"):
        one.options(run_in="process")
    limited: Any = fp.job("mail", kind="without a rate")(handler)
    with pytest.raises(InvalidInput, match=r"declare it with @fp\.job") as refused:
        limited.options(rate=Rate(5))
    assert refused.value.field == "rate"


def test_each_option_of_the_decorator_can_be_changed_or_says_why_not(fp: Fencepost) -> None:
    one: Any = fp.job("mail")(handler)
    declared = set(inspect.signature(fp.job).parameters) - {"queue"}
    refused = declared - Overrides.__annotations__.keys()
    assert refused == {"kind", "chunk", "chunk_wait", "unknown_arguments"}
    for name in refused:
        with pytest.raises(InvalidInput, match=f"{name} cannot be changed for one submission: ") as error:
            one.options(**{name: 1})
        assert error.value.field == name


def test_one_member_of_a_chunk_cannot_change_how_the_chunk_runs(fp: Fencepost) -> None:
    @fp.job("mail", chunk=10)
    def together(chunk: Chunk[Line]) -> None: ...

    for change in ({"timeout": 5}, {"timeout": None}, {"run_in": "thread"}):
        with pytest.raises(InvalidInput, match="A chunk runs many jobs in one call") as refused:
            cast("Any", together).options(**change)
        assert refused.value.field == next(iter(change))
    changed = together.options(retry=exponential(first_seconds=7), tries=2, priority="low")
    assert changed.declared.tries == 2


@pytest.mark.parametrize(
    ("unique", "key"),
    [
        (Unique(), 'handler:{"name":"ann","user":7}'),
        (Unique(args=("user",)), 'handler:{"user":7}'),
        (Unique(args=False), "handler:"),
        (Unique(args=False, queue=True), "handler:@mail:"),
        (Unique(args=False, kind=False, queue=True), "*:@mail:"),
        (Unique("{user}/{name}", kind=False), "*:7/ann"),
        ("{user}", "handler:7"),
    ],
)
def test_a_unique_key_says_what_is_compared(fp: Fencepost, unique: Any, key: str) -> None:
    assert fp.job("mail", unique=unique)(handler).submission(user=7).unique_key == key


def test_a_long_unique_key_is_a_digest(fp: Fencepost) -> None:
    one = fp.job("mail", unique=Unique())(handler)
    long = one.submission(user=1, name="x" * 10_000).unique_key
    assert long is not None
    assert long.startswith("handler:sha256:")
    assert len(long) < 100
    assert long != one.submission(user=2, name="x" * 10_000).unique_key

"""Jobs, as calls: submitted in the caller's transaction, claimed under a new attempt, finished once.

The table at the head of `functions/job.sql` is the state machine. The calls stand in the order of a job's
life: waiting (`submit` to `next_due`), running (`claim` to `blocked`, fenced by the attempt), and
those of an operator, who holds no attempt: the state that the operator saw guards the write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, LiteralString, NamedTuple, cast, get_args

from fencepost._durations import Duration, optional_seconds_of, positive_seconds_of
from fencepost.errors import InvalidInput
from fencepost.kernel._job_need import Serves, document_of
from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    column,
    document,
    duration,
    each,
    nothing,
    one,
    optional_document,
    optional_duration,
    optional_text,
    parsed,
    scalar,
    text,
)

PRIORITY_COUNT = 4
TRIES_MAX = 1000
LEASE_SECONDS_MAX = 86_400.0
TAG_BYTES_MAX = 128


class Submitted(NamedTuple):
    """The job of a submission. Not `created` when another job holds the unique key already; `replaced` when
    that job waits and the submission has changed it."""

    job_id: int
    created: bool
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Dispatchable:
    """A pending job that is locked for dispatch. Its payload stays where the truth is."""

    job_id: int
    attempt: int
    dispatches: int


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A dispatched job and where its entry lies."""

    job_id: int
    dispatched_at: datetime
    entry_id: str
    incarnation: str


def check_words(option: str, given: Sequence[str], allowed: Sequence[str] | None = None) -> None:
    """Refuses a text where a list is meant, and words that are not allowed."""
    if isinstance(given, str):
        raise InvalidInput(f"{option} is a list: write ({given!r},).", field=option)
    unknown = [word for word in given if allowed is not None and word not in allowed]
    if unknown:
        raise InvalidInput(
            f"{option} has {', '.join(map(repr, unknown))}; allowed are {', '.join(allowed or ())}.",
            field=option,
        )


UniqueState = Literal["waiting", "running", "finished", "dead", "cancelled"]
UniqueField = Literal["run_at", "priority", "tries", "lease", "payload", "headers", "tags"]
LIVE: tuple[UniqueState, ...] = ("waiting", "running")


@dataclass(frozen=True, kw_only=True)
class UniqueTerms:
    """How long a job holds its unique key, and what of it a later submission replaces."""

    period: Duration | None = None
    states: Sequence[UniqueState] | None = None
    """By default while it waits or runs, and with a period also when it has finished."""
    replace: Sequence[UniqueField] = ()

    def __post_init__(self) -> None:
        for option, given, allowed in (
            ("states", self.states or LIVE, get_args(UniqueState)),
            ("replace", self.replace, get_args(UniqueField)),
        ):
            check_words(option, given, allowed)
        ended = [state for state in self.states or () if state not in LIVE]
        if self.period is not None:
            positive_seconds_of("period", self.period)
        elif ended:
            raise InvalidInput(
                f"unique holds its key when a job is {', '.join(ended)}; give the period for which it does.",
                field="period",
            )
        if self.states is not None and "waiting" not in self.states:
            raise InvalidInput(
                "A job that waits always holds its unique key: put waiting among the states.", field="states"
            )
        if self.period is not None and self.states is not None and not ended:
            raise InvalidInput(
                "unique has a period, but no state of a job that has ended: add finished, or drop it.",
                field="period",
            )

    @property
    def held_states(self) -> list[UniqueState] | None:
        """The states in which a job holds its key; null in the database stands for the usual ones."""
        if self.states is None:
            return None if self.period is None else [*LIVE, "finished"]
        return list(self.states)


PLAIN_UNIQUE = UniqueTerms()


@dataclass(frozen=True)
class LabelTerms:
    """What a job is found by: its tags, and the arguments that are indexed."""

    tags: Sequence[str] = ()
    search_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_words("tags", self.tags)
        check_words("search_by", self.search_by)
        for tag in self.tags:
            if not isinstance(cast("object", tag), str) or not 0 < len(tag.encode()) <= TAG_BYTES_MAX:
                raise InvalidInput(f"tag {tag!r} must be a text of 1 to {TAG_BYTES_MAX} bytes.", field="tags")
        for option, given, most in (("tags", self.tags, 32), ("search_by", self.search_by, 16)):
            if len(given) > most:
                raise InvalidInput(
                    f"{option} has {len(given)} names; at most {most} are allowed.", field=option
                )


NO_LABELS = LabelTerms()


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """How a job waits and is claimed. What differs between the jobs of a handler is in `Submission`."""

    priority: int = 1
    run_at: datetime | None = None
    delay_seconds: float | None = None
    """From now, on the database's clock."""
    tries: int = 5
    lease_seconds: float = 60
    concurrency_limit: int = 1
    unique: UniqueTerms | None = None
    labels: LabelTerms = NO_LABELS

    def __post_init__(self) -> None:
        if self.priority not in range(PRIORITY_COUNT):
            raise InvalidInput(
                f"priority is {self.priority!r}; it must lie between 0 and 3.", field="priority"
            )
        _check_number("tries", self.tries, TRIES_MAX)
        _check_number("concurrency_limit", self.concurrency_limit, None)
        if not 0 < self.lease_seconds <= LEASE_SECONDS_MAX:
            raise InvalidInput(
                f"lease is {self.lease_seconds:g} s; it must be longer than 0 s and at most a day.",
                field="lease",
            )
        if self.run_at is not None and self.delay_seconds is not None:
            raise InvalidInput("run_at and delay exclude each other; give one.", field="run_at")
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise InvalidInput("run_at needs a time zone.", field="run_at")


def _check_number(option: str, value: int, most: int | None) -> None:
    # bool is an int to Python, and no count to a person.
    if type(value) is not int or value < 1 or (most is not None and value > most):
        bound = "at least 1" if most is None else f"a whole number between 1 and {most}"
        raise InvalidInput(f"{option} is {value!r}; it must be {bound}.", field=option)


DEFAULTS = SubmitOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One job. Nothing is sent until its `call` is sent."""

    queue: str
    kind: str
    payload: Json
    options: SubmitOptions = DEFAULTS
    unique_key: str | None = None
    concurrency_key: str | None = None
    headers: Mapping[str, Json] = field(default_factory=dict[str, Json])

    @property
    def concurrency_limit(self) -> int | None:
        """How many jobs of its concurrency key may run at once; None without a key."""
        return None if self.concurrency_key is None else self.options.concurrency_limit

    def call(self) -> Call[Submitted]:
        """The kernel call that submits it alone."""
        return submit(
            self.queue,
            self.kind,
            self.payload,
            self.options,
            unique_key=self.unique_key,
            concurrency_key=self.concurrency_key,
            headers=self.headers,
        )


def submit(
    queue: str,
    kind: str,
    payload: Json,
    options: SubmitOptions = DEFAULTS,
    *,
    unique_key: str | None = None,
    concurrency_key: str | None = None,
    headers: Mapping[str, Json] | None = None,
) -> Call[Submitted]:
    """Submit one job: the job and its waiting row, or neither."""
    more = _more_terms(options)
    return Call(
        _SUBMIT if more is None else _SUBMIT_MORE,
        (
            text("queue", queue),
            text("kind", kind),
            document("payload", payload),
            options.priority,
            options.run_at,
            optional_duration("delay", options.delay_seconds),
            options.tries,
            duration("lease", options.lease_seconds),
            optional_text("unique_key", unique_key),
            optional_text("concurrency_key", concurrency_key),
            None if concurrency_key is None else options.concurrency_limit,
            document("headers", dict(headers or {})),
            *(more or ()),
        ),
        one(Submitted),
    )


def submit_many(
    queue: str,
    kind: str,
    payloads: Sequence[Json],
    options: SubmitOptions = DEFAULTS,
    *,
    unique_keys: Sequence[str | None] | None = None,
    concurrency_keys: Sequence[str | None] | None = None,
    headers: Sequence[Mapping[str, Json]] | None = None,
) -> Call[list[Submitted]]:
    """Submit many jobs of one kind with one statement; answers in the order of the payloads."""
    more = _more_terms(options)
    return Call(
        _SUBMIT_MANY if more is None else _SUBMIT_MANY_MORE,
        (
            text("queue", queue),
            text("kind", kind),
            [document("payload", payload) for payload in payloads],
            options.priority,
            options.run_at,
            optional_duration("delay", options.delay_seconds),
            options.tries,
            duration("lease", options.lease_seconds),
            None if unique_keys is None else [optional_text("unique_key", k) for k in unique_keys],
            None
            if concurrency_keys is None
            else [optional_text("concurrency_key", k) for k in concurrency_keys],
            None if concurrency_keys is None else options.concurrency_limit,
            None if headers is None else [document("headers", dict(h)) for h in headers],
            *(more or ()),
        ),
        each(Submitted),
    )


_TERMS = ("period", "states", "replace", "tags", "search_by")
_MORE: LiteralString = ", %s::interval, %s::text[], %s::text[], %s::text[], %s::text[])"
_SUBMIT_TERMS: LiteralString = (
    "select job_id, created, replaced from fencepost.job_submit(%s::text, %s::text, %s::jsonb, %s::integer,"
    " coalesce(%s::timestamptz, fencepost.clock() + %s::interval), %s::integer, %s::interval, %s::text,"
    " %s::text, %s::integer, %s::jsonb"
)
_SUBMIT_MANY_TERMS: LiteralString = (
    "select job_id, created, replaced from fencepost.job_submit_many(%s::text, %s::text, %s::jsonb[],"
    " %s::integer, coalesce(%s::timestamptz, fencepost.clock() + %s::interval), %s::integer, %s::interval,"
    " %s::text[], %s::text[], %s::integer, %s::jsonb[]"
)
# Two statements each: most jobs have no such terms, and need not pay for arguments that are null.
_SUBMIT: LiteralString = _SUBMIT_TERMS + ")"
_SUBMIT_MORE: LiteralString = _SUBMIT_TERMS + _MORE
_SUBMIT_MANY: LiteralString = _SUBMIT_MANY_TERMS + ")"
_SUBMIT_MANY_MORE: LiteralString = _SUBMIT_MANY_TERMS + _MORE


def submission_terms(options: SubmitOptions) -> dict[str, Json]:
    """The unique terms and labels of a submission; empty for most."""
    unique, labels = options.unique or PLAIN_UNIQUE, options.labels
    terms: dict[str, Json] = {
        "period": None
        if unique.period is None
        else f"{optional_seconds_of('period', unique.period)} seconds",
        "states": unique.held_states,
        "replace": list(unique.replace),
        "tags": [text("tag", tag) for tag in labels.tags],
        "search_by": list(labels.search_by),
    }
    return {name: value for name, value in terms.items() if value}


def _more_terms(options: SubmitOptions) -> tuple[Any, ...] | None:
    """The arguments of a submission that has such terms; None for all others."""
    if options.unique is None and options.labels is NO_LABELS:
        return None
    terms = submission_terms(options)
    return tuple(terms.get(name) for name in _TERMS) if terms else None


def dispatch(
    queue: str, priority: int, limit: int, *, patience_seconds: float = 30
) -> Call[list[Dispatchable]]:
    """The due jobs of a priority, locked for this transaction, in which their entries are recorded."""
    return Call(
        "select job_id, attempt, dispatches"
        " from fencepost.job_dispatch(%s::text, %s::integer, %s::integer, %s::interval)",
        (text("queue", queue), priority, limit, duration("patience", patience_seconds)),
        each(Dispatchable),
    )


def dispatch_by_priority(
    queue: str, limit: int, *, patience_seconds: float = 30
) -> Call[dict[int, list[int]]]:
    """The due jobs of every priority that has some, at most `limit` of each, locked as by `dispatch`."""
    return Call(
        "select priority, job_id"
        " from fencepost.job_dispatch_by_priority(%s::text, %s::integer, %s::interval)",
        (text("queue", queue), limit, duration("patience", patience_seconds)),
        _by_priority,
    )


def dispatched(job_ids: Sequence[int], entry_ids: Sequence[str], incarnation: str) -> Call[int]:
    """Record where the entries lie, and in which life of Redis."""
    return Call(
        "select fencepost.job_dispatched(%s::bigint[], %s::text[], %s::text)",
        (list(job_ids), list(entry_ids), text("incarnation", incarnation)),
        scalar,
    )


def dispatch_failed(job_ids: Sequence[int], error: str, delay_seconds: float) -> Call[int]:
    """The entries could not be written: count the attempt and keep its error; pending for the delay."""
    return Call(
        "select fencepost.job_dispatch_failed(%s::bigint[], %s::text, %s::interval)",
        (list(job_ids), text("error", error), duration("delay", delay_seconds)),
        scalar,
    )


def dispatched_page(
    queue: str, priority: int, *, age_seconds: float, after: Dispatched | None = None, limit: int = 1000
) -> Call[list[Dispatched]]:
    """Dispatched jobs whose entries are older than `age_seconds`, oldest first, after the given one."""
    return Call(
        "select job_id, dispatched_at, entry_id, incarnation from fencepost.job_dispatched_page"
        "(%s::text, %s::integer, %s::interval, %s::timestamptz, %s::bigint, %s::integer)",
        (
            text("queue", queue),
            priority,
            duration("age", age_seconds),
            after and after.dispatched_at,
            after and after.job_id,
            limit,
        ),
        each(Dispatched),
    )


def recall(job_ids: Sequence[int], entry_ids: Sequence[str]) -> Call[int]:
    """Drive jobs again whose entries are lost; guarded by the entry that was judged lost."""
    return Call(
        "select fencepost.job_recall(%s::bigint[], %s::text[])", (list(job_ids), list(entry_ids)), scalar
    )


def next_due(queue: str) -> Call[datetime | None]:
    """When the next pending job of the queue is due: how long a loop may sleep."""
    return Call("select fencepost.job_next_due(%s::text)", (text("queue", queue),), scalar)


class Running(NamedTuple):
    """A claimed job. `attempt` is the fence: it goes with every write of its owner.

    A tuple, as all answers that come by the hundred: a frozen dataclass takes five times as long to make.
    """

    job_id: int
    attempt: int
    tries: int
    queue: str
    priority: int
    kind: str
    payload: Json
    headers: Mapping[str, Json]
    lease_seconds: float
    expires_at: datetime
    submitted_at: datetime


class ClaimAnswer(NamedTuple):
    """The answer for one of many: claimed (`running` is set), deferred, set aside for a worker that serves
    it, withheld because this worker is out of service, or refused with a reason."""

    job_id: int
    outcome: Literal["claimed", "deferred", "set_aside", "withheld", "refused"]
    refusal: str | None
    running: Running | None


@dataclass(frozen=True, slots=True)
class Renewed:
    job_id: int
    expires_at: datetime | None
    cancel_requested: bool
    refusal: str | None


class Finish(NamedTuple):
    """What a finished job leaves: its final status and a small result."""

    job_id: int
    attempt: int
    final_status: str = "ok"
    result: Json = None


class Unfinished(NamedTuple):
    """One of many that was not finished, why, and the row that the database saw."""

    job_id: int
    refusal: str
    seen: Mapping[str, Json] | None = None


Leaving = Literal["release", "retry", "bury", "cancel"]


@dataclass(frozen=True, slots=True)
class Leave:
    """How a running job leaves its owner without being finished."""

    job_id: int
    attempt: int
    how: Leaving
    error: str | None = None
    delay_seconds: float | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Left:
    job_id: int
    state: str | None
    refusal: str | None
    seen: Mapping[str, Json] | None = None
    """When it was refused: the row that the database saw."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    job_id: int
    attempt: int
    owner: str
    state: str
    charged: bool
    queue: str
    kind: str
    trace_id: str | None


def claim(job_id: int, owner: str, *, lease_seconds: float | None = None) -> Call[Running]:
    """Claim one job under a new attempt."""
    return Call(
        "select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease,"
        " expires_at,"
        " submitted_at from fencepost.job_claim(%s::bigint, %s::text, %s::interval)",
        (job_id, text("owner", owner), optional_duration("lease", lease_seconds)),
        _claimed,
    )


def claim_many(
    job_ids: Sequence[int], owner: str, *, lease_seconds: float | None = None, serves: Serves | None = None
) -> Call[list[ClaimAnswer]]:
    """Claim many; answers for each. What the caller does not serve is set aside."""
    return Call(
        "select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease,"
        " expires_at,"
        " submitted_at, outcome, refusal"
        " from fencepost.job_claim_many(%s::bigint[], %s::text, %s::interval, %s::jsonb)",
        (
            list(job_ids),
            text("owner", owner),
            optional_duration("lease", lease_seconds),
            document_of(serves),
        ),
        _claim_answers,
    )


def claim_next(
    queue: str,
    priority: int,
    owner: str,
    limit: int,
    *,
    lease_seconds: float | None = None,
    dispatched: bool = False,
) -> Call[list[ClaimAnswer]]:
    """Claim the due jobs of a priority straight from PostgreSQL; with `dispatched` also those in Redis."""
    return Call(
        "select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease,"
        " expires_at,"
        " submitted_at, outcome, refusal from fencepost.job_claim_next"
        "(%s::text, %s::integer, %s::text, %s::integer, %s::interval, %s::boolean)",
        (
            text("queue", queue),
            priority,
            text("owner", owner),
            limit,
            optional_duration("lease", lease_seconds),
            dispatched,
        ),
        _claim_answers,
    )


def claim_by_priority(
    queue: str,
    owner: str,
    limit: int,
    *,
    lease_seconds: float | None = None,
    dispatched: bool = False,
    turn: int | None = None,
    since: Sequence[datetime | None] | None = None,
    serves: Serves | None = None,
) -> Call[list[ClaimAnswer]]:
    """The same for all priorities of a queue, which share the places. A caller that counts turns leaves out
    no priority for long. `since` limits each priority to jobs that were due since that moment. What the
    caller does not serve is set aside."""
    return Call(
        "select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease,"
        " expires_at,"
        " submitted_at, outcome, refusal from fencepost.job_claim_by_priority"
        "(%s::text, %s::text, %s::integer, %s::interval, %s::boolean, %s::bigint, %s::timestamptz[],"
        " %s::jsonb)",
        (
            text("queue", queue),
            text("owner", owner),
            limit,
            optional_duration("lease", lease_seconds),
            dispatched,
            turn,
            None if since is None else list(since),
            document_of(serves),
        ),
        _claim_answers,
    )


def claim_suspects(
    queues: Sequence[str],
    serves: Serves,
    owner: str,
    limit: int,
    *,
    lease_seconds: float | None = None,
) -> Call[list[ClaimAnswer]]:
    """Claim at most half of a group of suspects, for an owner that holds nothing else."""
    return Call(
        "select job_id, attempt, tries, queue, priority, kind, payload::text, headers::text, lease,"
        " expires_at,"
        " submitted_at, outcome, refusal from fencepost.job_claim_suspects"
        "(%s::text[], %s::jsonb, %s::text, %s::integer, %s::interval)",
        (
            list(queues),
            serves.document,
            text("owner", owner),
            limit,
            optional_duration("lease", lease_seconds),
        ),
        _claim_answers,
    )


def renew(job_id: int, attempt: int, owner: str) -> Call[Renewed]:
    """Extend the lease of one running job. Raises a Refusal if the attempt is not the owner's any longer."""
    return Call(
        "select %s::bigint, expires_at, cancel_requested, null"
        " from fencepost.job_renew(%s::bigint, %s::bigint, %s::text)",
        (job_id, job_id, attempt, text("owner", owner)),
        one(Renewed),
    )


def renew_many(job_ids: Sequence[int], attempts: Sequence[int], owner: str) -> Call[list[Renewed]]:
    """Renew all jobs of one owner with one statement; in_flight means locked at this moment, not lost."""
    return Call(
        "select job_id, expires_at, cancel_requested, refusal"
        " from fencepost.job_renew_many(%s::bigint[], %s::bigint[], %s::text)",
        (list(job_ids), list(attempts), text("owner", owner)),
        each(Renewed),
    )


def progress(job_id: int, attempt: int, owner: str, value: Json) -> Call[None]:
    """Store how far a running job is. Fenced by attempt and owner."""
    return Call(
        "select fencepost.job_progress(%s::bigint, %s::bigint, %s::text, %s::jsonb)",
        (job_id, attempt, text("owner", owner), document("progress", value)),
        nothing,
    )


def fence(job_id: int, attempt: int, owner: str) -> Call[None]:
    """From here to the end of the transaction no other owner can take the job over."""
    return Call(
        "select fencepost.job_fence(%s::bigint, %s::bigint, %s::text)",
        (job_id, attempt, text("owner", owner)),
        nothing,
    )


def fence_all(jobs: Sequence[tuple[int, int]], owner: str) -> Call[None]:
    """`fence` for many, given as id and attempt: all of them, in order of id, or the first that is refused
    refuses the transaction."""
    return Call(
        "select fencepost.job_fence_all(%s::bigint[], %s::bigint[], %s::text)",
        ([job_id for job_id, _ in jobs], [attempt for _, attempt in jobs], text("owner", owner)),
        nothing,
    )


def finish(done: Finish, owner: str) -> Call[None]:
    """The one finishing write."""
    return Call(
        "select fencepost.job_finish(%s::bigint, %s::bigint, %s::text, %s::text, %s::jsonb)",
        (
            done.job_id,
            done.attempt,
            text("owner", owner),
            text("final_status", done.final_status),
            optional_document("result", done.result),
        ),
        nothing,
    )


def finish_many(
    done: Sequence[Finish], owner: str, *, leaving: Sequence[Leave] = ()
) -> Call[list[Unfinished]]:
    """Finish many with one statement and one commit; answers those that were refused. All others are done.

    `leaving` is what `leave_many` gets in the same transaction, after this call: the batches of both are
    locked here, in one order.
    """
    # Most end well and leave nothing, which need not be said of each.
    is_plain = all(d.final_status == "ok" and d.result is None for d in done)
    return Call(
        "select job_id, refusal, seen::text from fencepost.job_finish_many"
        "(%s::bigint[], %s::bigint[], %s::text, %s::text[], %s::jsonb[], %s::bigint[])"
        " where refusal is not null",
        (
            [d.job_id for d in done],
            [d.attempt for d in done],
            text("owner", owner),
            None if is_plain else [text("final_status", d.final_status) for d in done],
            None if is_plain else [optional_document("result", d.result) for d in done],
            [one.job_id for one in leaving if one.how != "release"] or None,
        ),
        each(_unfinished),
    )


def release(job_id: int, attempt: int, owner: str, *, delay_seconds: float | None = None) -> Call[str]:
    """Give it back unfinished: the try is not counted. Answers its state now."""
    return Call(
        "select fencepost.job_release(%s::bigint, %s::bigint, %s::text, %s::interval)",
        (job_id, attempt, text("owner", owner), optional_duration("delay", delay_seconds)),
        scalar,
    )


def retry(job_id: int, attempt: int, owner: str, error: str, delay_seconds: float) -> Call[str]:
    """It failed: wait and try again, or dead when no tries are left. Answers its state now."""
    return Call(
        "select fencepost.job_retry(%s::bigint, %s::bigint, %s::text, %s::text, %s::interval)",
        (job_id, attempt, text("owner", owner), text("error", error), duration("delay", delay_seconds)),
        scalar,
    )


def bury(job_id: int, attempt: int, owner: str, error: str) -> Call[str]:
    """It cannot succeed: dead at once. Answers its state now."""
    return Call(
        "select fencepost.job_bury(%s::bigint, %s::bigint, %s::text, %s::text)",
        (job_id, attempt, text("owner", owner), text("error", error)),
        scalar,
    )


def leave_many(leaves: Sequence[Leave], owner: str) -> Call[list[Left]]:
    """Release, retry, bury or cancel many, each in its own way; answers for each."""
    return Call(
        "select job_id, state, refusal, seen::text from fencepost.job_leave_many"
        "(%s::bigint[], %s::bigint[], %s::text, %s::text[], %s::text[], %s::interval[], %s::text[])",
        (
            [leave.job_id for leave in leaves],
            [leave.attempt for leave in leaves],
            text("owner", owner),
            [leave.how for leave in leaves],
            [optional_text("error", leave.error) for leave in leaves],
            [optional_duration("delay", leave.delay_seconds) for leave in leaves],
            [optional_text("traceback", leave.traceback) for leave in leaves],
        ),
        each(_left),
    )


def reclaim(limit: int, *, grace_seconds: float = 0) -> Call[list[Reclaimed]]:
    """Put back what has been expired for the grace."""
    return Call(
        "select job_id, attempt, owner, state, charged, queue, kind, trace_id"
        " from fencepost.job_reclaim(%s::integer, %s::interval)",
        (limit, duration("grace", grace_seconds)),
        each(Reclaimed),
    )


def reclaim_owner(owner: str, why: str) -> Call[list[Reclaimed]]:
    """Put back what an owner held whose process was seen to end."""
    return Call(
        "select job_id, attempt, owner, state, charged, queue, kind, trace_id"
        " from fencepost.job_reclaim_owner(%s::text, %s::text)",
        (text("owner", owner), text("why", why)),
        each(Reclaimed),
    )


def reserve_suspects(queues: Sequence[str], serves: Serves, owner: str, ttl_seconds: float) -> Call[bool]:
    """Whether the owner is to make room for suspects that wait: no other worker does so for them."""
    return Call(
        "select fencepost.job_reserve_suspects(%s::text[], %s::jsonb, %s::text, %s::interval)",
        (list(queues), serves.document, text("owner", owner), duration("ttl", ttl_seconds)),
        scalar,
    )


def blocked(limit: int, *, grace_seconds: float = 0) -> Call[list[int]]:
    """Expired jobs whose old owner still has a fenced transaction open."""
    return Call(
        "select * from fencepost.job_blocked(%s::integer, %s::interval)",
        (limit, duration("grace", grace_seconds)),
        column,
    )


def cancel(job_id: int, actor: str, *, expected: str | None = None) -> Call[str]:
    """Answers cancelled, or requested for a job that runs."""
    return Call(
        "select fencepost.job_cancel(%s::bigint, %s::text, %s::text)",
        (job_id, text("actor", actor), optional_text("expected", expected)),
        scalar,
    )


def replay(job_id: int, actor: str, *, expected: Literal["dead", "cancelled"] = "dead") -> Call[None]:
    """Let a dead or cancelled job wait again, with all of its tries."""
    return Call(
        "select fencepost.job_replay(%s::bigint, %s::text, %s::text)",
        (job_id, text("actor", actor), expected),
        nothing,
    )


def reschedule(
    job_id: int, actor: str, *, run_at: datetime | None, delay_seconds: float | None
) -> Call[datetime]:
    """Give a waiting job another time, at a moment or from now; returns when it is due."""
    return Call(
        "select fencepost.job_reschedule(%s::bigint,"
        " coalesce(%s::timestamptz, fencepost.clock() + %s::interval), %s::text)",
        (job_id, run_at, optional_duration("delay", delay_seconds), text("actor", actor)),
        scalar,
    )


def discard(job_id: int, actor: str) -> Call[None]:
    """Give up a dead job for good: it ends as cancelled."""
    return Call("select fencepost.job_discard(%s::bigint, %s::text)", (job_id, text("actor", actor)), nothing)


def prune(keep_seconds: float, limit: int, *, dead: bool = False) -> Call[int]:
    """Delete at most `limit` ended jobs older than this; answers how many. Dead ones stay unless `dead`."""
    return Call(
        "select fencepost.job_prune(%s::interval, %s::integer, %s::boolean)",
        (duration("keep", keep_seconds), limit, dead),
        scalar,
    )


def prune_unique(limit: int) -> Call[int]:
    """Delete unique keys whose period has passed; returns how many."""
    return Call("select fencepost.unique_prune(%s::integer)", (limit,), scalar)


def _unfinished(job_id: int, refusal: str, seen: str | None) -> Unfinished:
    return Unfinished(job_id, refusal, None if seen is None else parsed(seen))


def _left(job_id: int, state: str | None, refusal: str | None, seen: str | None) -> Left:
    return Left(job_id, state, refusal, None if seen is None else parsed(seen))


def _by_priority(rows: Sequence[Row]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for priority, job_id in rows:
        found.setdefault(priority, []).append(job_id)
    return found


def _claimed(rows: Sequence[Row]) -> Running:
    [answer] = _claim_answers([(*rows[0], "claimed", None)])
    assert answer.running is not None, "it was claimed"
    return answer.running


def _claim_answers(rows: Sequence[Row]) -> list[ClaimAnswer]:
    """By place, and without a call for each: claims come by the hundred."""
    answers: list[ClaimAnswer] = []
    for (
        job_id,
        attempt,
        tries,
        queue,
        priority,
        kind,
        payload,
        headers,
        lease,
        until,
        since,
        how,
        why,
    ) in rows:
        running = None
        if how == "claimed":
            # Many have no arguments, most no headers, and reading none costs as much as reading some.
            given: Json = {} if payload == "{}" else parsed(payload)
            named: Mapping[str, Json] = {} if headers == "{}" else parsed(headers)
            seconds = lease.total_seconds()
            running = Running._make(
                (job_id, attempt, tries, queue, priority, kind, given, named, seconds, until, since)
            )
        answers.append(ClaimAnswer._make((job_id, how, why, running)))
    return answers

"""The geometry of a workflow's timeline."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost_server.console import _timeline as timeline
from fencepost_server.console._timeline import NAME_WIDTH, PLOT_WIDTH, TimelineSpan

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
JOB = {"claimed_at": None, "attempt": 3}


def after(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def step(
    name: str, seconds: float, *, what: str = "step", attempt: int = 1, result: Any = None
) -> dict[str, Any]:
    return {"name": name, "what": what, "attempt": attempt, "at": after(seconds), "result": result}


def wait(
    name: str, *, emitted_at: datetime | None = None, deadline: datetime | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "event": name,
        "since": after(3),
        "deadline": deadline,
        "emitted_at": emitted_at,
    }


def moment(event: str, seconds: float, **detail: Any) -> dict[str, Any]:
    refused = event.startswith("refused:")
    return {
        "at": after(seconds),
        "event": event,
        "actor": "anna",
        "token": 1,
        "detail": detail,
        "refused": refused,
    }


def spans(steps: list[dict[str, Any]], now: float = 100, **given: Any) -> list[TimelineSpan]:
    kinds: dict[str, list[Any]] = {"waits": [], "children": [], "undo": [], "life": [], **given}
    return timeline.spans(
        JOB, steps, kinds["waits"], kinds["children"], kinds["undo"], kinds["life"], after(now)
    )


def test_a_step_begins_where_its_attempt_was_claimed_or_where_the_record_before_it_ends() -> None:
    steps = [step("a", 2), step("b", 5), step("c", 50, attempt=2)]
    failure = moment("failed", 9, claimed_at=after(1).isoformat(), to="pending")
    first, second, failed, other = spans(steps, life=[failure])
    assert (failed.kind, failed.start, failed.end) == ("failed", after(1), after(9))
    assert (first.start, first.end) == (after(1), after(2))
    assert (second.start, second.end) == (after(2), after(5))
    assert (other.start, other.end) == (after(5), after(50))


def test_a_sleep_lasts_until_its_end_and_is_open_before() -> None:
    asleep = step("night", 2, what="sleep", result=after(86_400).isoformat())
    [now], [later] = spans([asleep]), spans([asleep], now=90_000)
    assert (now.end, now.open, later.open) == (after(86_400), True, False)
    assert now.words == "23 h 59 min"
    [defiled] = spans([step("night", 2, what="sleep", result="soon")])
    assert defiled.end == after(2)


def test_waits_children_undo_refusals_and_decisions_have_a_place() -> None:
    found = spans(
        [step("parts", 2, what="spawn")],
        waits=[
            wait("approve", deadline=after(160)),
            wait("paid", emitted_at=after(70), deadline=after(160)),
            {**wait("night", deadline=after(160)), "event": None},
        ],
        children=[{"name": "parts", "size": 3, "remaining": 1, "completed_at": None}],
        undo=[{"step": "reserve", "submitted_at": after(60), "finished_at": after(61), "state": "finished"}],
        life=[
            moment("refused:stale_attempt", 4, attempted={"name": "ship"}),
            moment("retried_from", 5, step="ship"),
            moment("submitted", 0),
        ],
    )
    assert [(one.kind, one.name, one.words, one.open) for one in found] == [
        ("refused", "refused: ship", "stale_attempt", False),
        ("decided", "retried from", "anna", False),
        ("undo", "undo of reserve", "finished", False),
        ("wait", "paid", "emitted", False),
        ("spawn", "parts", "2 of 3 ended", True),
        ("wait", "approve", "1 min left", True),
    ]


def test_steps_of_milliseconds_can_be_seen_beside_a_sleep_of_days() -> None:
    found = [
        TimelineSpan("step", "a", after(0), after(0.01)),
        TimelineSpan("sleep", "b", after(0.01), after(864_000)),
        TimelineSpan("step", "c", after(864_000), after(864_000.02)),
    ]
    drawn = timeline.lay_out("workflow 7", found, BEGIN)
    assert [row.is_mark for row in drawn.rows] == [False, False, False]
    assert drawn.rows[1].width > drawn.rows[2].width > drawn.rows[0].width
    assert all(row.x >= NAME_WIDTH and row.x + row.width <= NAME_WIDTH + PLOT_WIDTH for row in drawn.rows)
    assert drawn.ticks[0].label == "start"
    assert "+10 d" in [tick.label for tick in drawn.ticks]
    assert drawn.summary == "The timeline of workflow 7: a (step), b (sleep), c (step)"


def test_a_workflow_that_did_nothing_yet_is_drawn() -> None:
    drawn = timeline.lay_out("workflow 7", [], BEGIN)
    assert (drawn.rows, drawn.summary) == ([], "The timeline of workflow 7: nothing yet")

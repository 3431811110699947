from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from fencepost.cli._durations import span
from fencepost.cli._status_metrics import StatusCollector
from fencepost.cli._status_page import board_page
from fencepost.cli._status_screen import board_screen
from fencepost.cli._status_snapshot import (
    ChannelStatus,
    LeaseStatus,
    QueueStatus,
    Reason,
    StatusSnapshot,
    UnservedWork,
    Workers,
)
from fencepost.errors import ServerUnavailable
from fencepost.metrics import LABELS, Metrics

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BOARD = StatusSnapshot(
    at=NOW,
    queues=(QueueStatus("[red]<b>mail", 3, 1, 2, 4, 3900.0, True),),
    workers=(Workers("postgresql", 2), Workers("redis", 3)),
    leases=(
        LeaseStatus(
            "signer", "node-1", 7, NOW - timedelta(minutes=2), NOW, NOW + timedelta(seconds=30), True
        ),
        LeaseStatus("old", "node-2", 3, NOW, NOW, NOW - timedelta(seconds=1), False),
        LeaseStatus("free", None, 2, NOW, NOW, NOW, False),
    ),
    leases_held=25,
    outbox=(ChannelStatus("broker", 5, 1, 0, 2, 0, 12.0),),
    refusals=(
        Reason("stale_attempt", "ZF001", 2, "A later attempt exists.", "Stop."),
        Reason("in_flight", "ZF010", 9, "Another transaction is doing it.", "Ask again."),
        Reason("too_old", "ZF011", 0, "Too old.", "Make a new key."),
    ),
    unserved=(
        UnservedWork("no_worker", "letters", None, None, [], 12, 90.0, "queue letters: 12 waiting, …"),
        UnservedWork("unknown_arguments", "mail", "greet", None, ["colour", "size"], 4, 5.0, "four <b>wait"),
        UnservedWork("schedule", "mail", "beat", "heartbeat", [], 0, None, "schedule heartbeat fires beat"),
    ),
)
EMPTY = StatusSnapshot(at=NOW, queues=(), workers=(), leases=(), leases_held=0, outbox=(), refusals=())


def screen(board: StatusSnapshot) -> str:
    console = Console(file=io.StringIO(), width=120, highlight=False)
    console.print(board_screen(board))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_screen_shows_everything_and_takes_names_as_names() -> None:
    said = screen(BOARD)
    for expected in (
        "[red]<b>mail",
        "1 h 5 min",
        "paused",
        "PostgreSQL alone",
        "2 min",
        "30 s",
        "expired",
        "free",
        "and 5 more held",
        "queue letters: 12 waiting, …",
        "schedule heartbeat fires beat",
    ):
        assert expected in said
    assert said.index("in_flight") < said.index("stale_attempt"), "the most frequent reason comes first"
    assert "too_old" not in said, "a reason that was never given is no news"


def test_an_empty_screen_says_so() -> None:
    said = screen(EMPTY)
    for expected in (
        "no jobs in any queue",
        "no workers are registered",
        "none yet",
        "nothing waits",
        "none",
    ):
        assert expected in said


def test_the_page_shows_the_same_and_cannot_be_injected() -> None:
    page = board_page(BOARD)
    assert "[red]&lt;b&gt;mail" in page
    assert "<b>" not in page
    assert "<script" not in page
    assert "in_flight" in page
    assert "<td>2</td><td>PostgreSQL alone" in page
    assert "four &lt;b&gt;wait" in page
    assert "Nothing waits." in board_page(EMPTY)


def test_the_figures_are_metrics_with_allowed_labels() -> None:
    metrics = Metrics()
    metrics.registry.register(StatusCollector(lambda: BOARD))
    page = metrics.page().body.decode()
    assert 'fencepost_jobs{queue="[red]<b>mail",state="dead"} 4.0' in page
    assert 'fencepost_outbox_messages{channel="broker",state="unknown"} 2.0' in page
    assert 'fencepost_outbox_lag_seconds{channel="broker"} 12.0' in page
    assert 'fencepost_database_refusals_total{reason="in_flight"} 9.0' in page
    assert "fencepost_leases_held 25.0" in page
    assert 'fencepost_job_workers{mode="postgresql"} 2.0' in page
    for labels, value in (
        ('kind="",missing="",queue="letters",reason="no_worker",schedule=""', 12),
        ('kind="greet",missing="colour, size",queue="mail",reason="unknown_arguments",schedule=""', 4),
        ('kind="beat",missing="",queue="mail",reason="schedule",schedule="heartbeat"', 1),
    ):
        assert f"fencepost_unserved_work{{{labels}}} {value}.0" in page
    for family in StatusCollector(lambda: BOARD).collect():
        for sample in family.samples:
            assert set(sample.labels) <= LABELS


def test_a_database_that_cannot_be_reached_is_itself_a_figure() -> None:
    def unreachable() -> StatusSnapshot:
        raise ServerUnavailable("gone")

    metrics = Metrics()
    metrics.registry.register(StatusCollector(unreachable))
    page = metrics.page().body.decode()
    assert "fencepost_database_reachable 0.0" in page
    assert "fencepost_jobs" not in page


def test_the_json_has_every_part() -> None:
    shown = replace(BOARD, leases=()).as_json()
    assert shown["queues"][0]["dead"] == 4
    assert shown["workers"][1] == {"drive": "redis", "workers": 3}
    assert shown["refusals"][2] == {
        "reason": "too_old",
        "sqlstate": "ZF011",
        "refused": 0,
        "meaning": "Too old.",
        "remedy": "Make a new key.",
    }


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0.0042, "4 ms"),
        (1.25, "1.2 s"),
        (42, "42 s"),
        (3900, "1 h 5 min"),
        (3600, "1 h"),
        (90_000, "1 d 1 h"),
        (86_430, "1 d"),
        (-75, "-1 min 15 s"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(seconds: float | None, shown: str) -> None:
    assert span(seconds) == shown

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
import structlog

from fencepost.logs import LogLimiter, configure_logging, log_context


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_is_one_object_a_line_with_level_logger_and_time(stream: io.StringIO) -> None:
    configure_logging(form="json", stream=stream)
    structlog.get_logger("fencepost.kernel").info("lease acquired", resource="r", token=17)
    (event,) = events(stream)
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "lease acquired",
        "resource": "r",
        "token": 17,
        "level": "info",
        "logger": "fencepost.kernel",
    }


def test_the_standard_logging_comes_out_in_the_same_form(stream: io.StringIO) -> None:
    configure_logging(form="json", stream=stream)
    logging.getLogger("psycopg.pool").warning("reconnecting to %s", "redis://:s3cret@h", extra={"tries": 3})
    (event,) = events(stream)
    assert event["event"] == "reconnecting to redis://:***@h"
    assert (event["logger"], event["level"], event["tries"]) == ("psycopg.pool", "warning", 3)


def test_the_job_is_on_every_event_inside_the_block(stream: io.StringIO) -> None:
    configure_logging(form="json", stream=stream)
    log = structlog.get_logger("t")
    with log_context(job_id=7, attempt=2, trace_id="abc"):
        log.info("inside")
        logging.getLogger("other").info("inside too")
    log.info("outside")
    inside, foreign, outside = events(stream)
    for event in (inside, foreign):
        assert (event["job_id"], event["attempt"], event["trace_id"]) == (7, 2, "abc")
    assert "job_id" not in outside


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_are_hidden_and_fencing_tokens_are_not(stream: io.StringIO, form: Any) -> None:
    configure_logging(form=form, stream=stream)
    structlog.get_logger("t").info(
        "x", password="s3cret", api={"secret": "s3cret"}, url="redis://:s3cret@h", token=17
    )
    assert "s3cret" not in stream.getvalue()
    assert "17" in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_are_hidden_in_tracebacks(stream: io.StringIO, form: Any) -> None:
    configure_logging(form=form, stream=stream)
    try:
        raise ConnectionError("postgresql://app:s3cret@db refused")  # noqa: TRY301 - The text is what matters.
    except ConnectionError:
        structlog.get_logger("t").exception("lost")
        logging.getLogger("t").exception("lost")
    assert stream.getvalue().count("ConnectionError: postgresql://app:***@db refused") == 2
    assert "s3cret" not in stream.getvalue()


def test_what_lies_below_the_level_is_left_out(stream: io.StringIO) -> None:
    configure_logging(level="warning", form="json", stream=stream)
    structlog.get_logger("t").info("quiet")
    logging.getLogger("t").info("quiet")
    structlog.get_logger("t").warning("loud")
    assert [event["event"] for event in events(stream)] == ["loud"]


def test_configuring_again_replaces_and_does_not_double(stream: io.StringIO) -> None:
    configure_logging(form="json", stream=io.StringIO())
    configure_logging(form="json", stream=stream)
    structlog.get_logger("t").info("once")
    assert len(events(stream)) == 1


def test_the_console_form_is_plain_when_no_caller_watches(stream: io.StringIO) -> None:
    configure_logging(form="console", stream=stream)
    structlog.get_logger("t").info("lease acquired", token=17)
    assert "lease acquired" in stream.getvalue()
    assert "\x1b[" not in stream.getvalue()


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_flood_is_sampled_and_the_rest_is_counted() -> None:
    clock, said = Hand(), list[dict[str, Any]]()
    limiter = LogLimiter(burst=2, window_seconds=10, clock=clock)

    def say(event: str, **fields: Any) -> None:
        said.append({"event": event, **fields})

    passed = [limiter.log(say, "refused", reason="stale_attempt") for _ in range(100)]
    assert passed.count(True) == 2
    clock.now = 10.0
    assert limiter.log(say, "refused", reason="stale_attempt")
    assert [event.get("suppressed") for event in said] == [None, None, 98]


def test_kinds_flood_apart_from_each_other() -> None:
    limiter = LogLimiter(burst=1, clock=Hand())
    assert [limiter.admit("a"), limiter.admit("b"), limiter.admit("a")] == [0, 0, None]


def test_the_number_of_kinds_is_bounded() -> None:
    limiter = LogLimiter(burst=1, kinds_max=2, clock=Hand())
    assert [limiter.admit(kind) for kind in ("a", "b", "c")] == [0, 0, 0]
    assert limiter.admit("c") is None
    assert limiter.admit("a") == 0, "the kind that began longest ago was forgotten"

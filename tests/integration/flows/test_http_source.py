"""An HTTP service that is asked again and again: each of its records once, whatever ends the task."""

import json
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fencepost.flows import Flow, GraphRefused, SourceTrimmed
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._errors import FlowError
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources._log import SourceLog
from fencepost.flows.sources.http import HttpPolling
from tests.integration.flows.harness import FlowHarness
from tests.integration.flows.source_matrix import HARDEST, POINTS, check_source

PAGE = 9
TOKEN = "a-token-of-the-service"
Answer = tuple[int, dict[str, str], bytes]


class Service:
    """Has numbered records, and answers those behind `since`, some at a time."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.requests: list[dict[str, list[str]]] = []
        self.answers: list[int] = []
        self.before: list[Answer] = []
        """Answered first."""
        self.inclusive = False
        self.marks = False
        """Whether it sends an ETag, and honours one."""
        self.url = ""

    def answer(self, path: str, headers: Any) -> Answer:
        query = parse_qs(urlsplit(path).query)
        self.requests.append(query)
        if self.before:
            return self.before.pop(0)
        since = int(query.get("since", ["-1"])[0])
        first = since if self.inclusive else since + 1
        page = [n for n in self.records if n >= first][:PAGE]
        body = json.dumps({"items": [{"n": n} for n in page], "last": page[-1] if page else None}).encode()
        mark = f'"{hash(body)}"'
        if self.marks and headers.get("If-None-Match") == mark:
            return 304, {}, b""
        return 200, {"ETag": mark} if self.marks else {}, body


@contextmanager
def served() -> Generator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = service.answer(self.path, self.headers)
            service.answers.append(status)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 304:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        service.url = f"http://127.0.0.1:{server.server_address[1]}/orders?limit=9"
        yield service
        server.shutdown()
        thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    with served() as service:
        yield service


def polling(service: Service, **changes: Any) -> HttpPolling:
    options: dict[str, Any] = {
        "every": 0.01,
        "records": _items,
        "cursor": _last,
        "headers": {"Authorization": f"Bearer {TOKEN}"},
        "name": "orders",
    }
    return HttpPolling(service.url, **{**options, **changes})


def _items(page: Any) -> Any:
    return page["items"]


def _last(page: Any) -> Any:
    return page["last"]


def flow_of(source: HttpPolling) -> Flow:
    return Flow("polled").source(source).map(_number).sink(PostgresRows("line", ["value"]))


def _number(record: Any) -> int:
    return int(record["n"])


def values(harness: FlowHarness) -> list[int]:
    return [row[0] for row in harness.rows("select value from line order by ctid")]


@pytest.mark.parametrize("inclusive", [False, True], ids=["behind", "overlapping"])
@pytest.mark.parametrize(
    "points", [pytest.param(HARDEST, id="hardest"), pytest.param(POINTS, id="all", marks=pytest.mark.full)]
)
async def test_records_come_once_wherever_a_task_ends(
    harness: FlowHarness, service: Service, tmp_path: Path, points: Sequence[str], inclusive: bool
) -> None:
    service.inclusive = inclusive
    identify: Callable[[Any], str] | None = (lambda record: str(record["n"])) if inclusive else None

    async def feed(given: Sequence[int]) -> None:
        service.records += given

    await check_source(
        harness,
        tmp_path / "out",
        lambda flow: flow.source(polling(service, identify=identify)).map(_number),
        feed,
        points,
    )


async def test_new_records_are_asked_for_behind_the_cursor(harness: FlowHarness, service: Service) -> None:
    async with harness.running(harness.worker(flow_of(polling(service)))):
        for n in range(3):
            service.records += range(10 * n, 10 * n + 10)
            await harness.until(lambda last=10 * n + 10: values(harness) == list(range(last)))  # type: ignore[misc]

    assert all(query["limit"] == ["9"] for query in service.requests)
    assert "since" not in service.requests[0]
    assert service.requests[-1]["since"] == ["29"]


async def test_an_answer_that_did_not_change_is_not_read_again(
    harness: FlowHarness, service: Service
) -> None:
    """Without a cursor: every answer is the whole state, and a mark tells whether it is new."""
    service.marks = True
    service.records = [1]
    source = polling(service, cursor=None)

    async with harness.running(harness.worker(flow_of(source))):
        await harness.until(lambda: service.answers.count(304) >= 3)
        service.marks = False
        count = len(service.answers)
        await harness.until(lambda: len(service.answers) >= count + 3)
        service.records = [2, 3]
        await harness.until(lambda: len(values(harness)) >= 3)

    assert values(harness) == [1, 2, 3]


async def test_a_service_that_is_away_is_asked_again_later(harness: FlowHarness, service: Service) -> None:
    service.records = list(range(20))
    service.before = [(503, {"Retry-After": "0"}, b""), (429, {"Retry-After": "0"}, b"")]

    await harness.run(flow_of(polling(service)))

    assert values(harness) == list(range(20))


OF_EVERY_REQUEST: list[tuple[Answer, str]] = [
    ((401, {}, f"no {TOKEN} here".encode()), "answered 401"),
    ((302, {"Location": "http://127.0.0.1:1/"}, b""), "answered 302"),
    ((200, {}, b"<html>"), "are no JSON"),
]


@pytest.mark.parametrize(("answer", "why"), OF_EVERY_REQUEST)
async def test_what_concerns_every_request_is_told(
    harness: FlowHarness, service: Service, answer: Answer, why: str
) -> None:
    service.before = [answer] * 3
    reader = await polling(service).open(await harness.leased_context(), "0", None)

    with pytest.raises(FlowError, match=why) as told:
        await reader.read(10, 30)
    await reader.close()

    assert TOKEN not in str(told.value)
    assert "limit" not in str(told.value)


async def test_an_append_whose_answer_was_lost_is_not_repeated(
    harness: FlowHarness, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.records = list(range(5))
    true_append, lost = SourceLog.append, [True]

    async def append(self: SourceLog, *given: Any, **options: Any) -> int:
        count = await true_append(self, *given, **options)
        if lost and lost.pop():
            raise ConnectionError("the answer was lost")
        return count

    monkeypatch.setattr(SourceLog, "append", append)
    await harness.run(flow_of(polling(service)))

    assert values(harness) == list(range(5))


async def test_the_log_is_trimmed_and_an_older_savepoint_is_refused(
    harness: FlowHarness, service: Service
) -> None:
    def kept() -> int:
        return int(harness.rows("select count(*) from fencepost.flow_log_entry")[0][0])

    service.records = list(range(5))
    async with harness.running(harness.worker(flow_of(polling(service)))):
        await harness.until(lambda: len(values(harness)) == 5)
        await harness.fp.run(flow_store.save("polled", "early"))
        service.records += range(5, 10)
        await harness.until(lambda: len(values(harness)) == 10 and kept() == 0)
    await harness.fp.run(flow_store.restore("polled", "early"))

    with pytest.raises(SourceTrimmed, match="begins behind 5"):
        await harness.worker(flow_of(polling(service))).run()


def test_addresses_that_cannot_be_asked() -> None:
    for url in ("orders", "ftp://host/x", "https:///x"):
        with pytest.raises(GraphRefused, match="no address that can be asked"):
            HttpPolling(url)

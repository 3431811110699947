"""Records that an HTTP service answers when it is asked again and again.

An answer cannot be asked for a second time, so its records are appended to a log of the flow, in one
transaction with what is asked next, and read from there by number.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from fencepost._durations import Duration, positive_seconds_of, seconds_of
from fencepost.backoff import Backoff
from fencepost.flows._errors import FlowError, GraphRefused, SourceTrimmed
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import Offset
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._log import Found, SourceLog
from fencepost.flows.sources._source import Chunk
from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply, Request, failure_name
from fencepost.logs import get_logger
from fencepost.redaction import redact_text

_log = get_logger(__name__)
Headers = Mapping[str, str] | Callable[[], Mapping[str, str]]
RETRIES = Backoff(1.0, 300.0)
RETRY_AFTER_MAX = 3600.0
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})


def _records_of(document: Any) -> Sequence[Any]:
    """A list is many records; any other document is one."""
    return document if isinstance(document, list) else [document]  # pyright: ignore[reportUnknownVariableType]


class HttpPolling:
    """The records in the JSON answers of a service, asked `every` so often with GET.

    `records` takes them out of an answer; by default a list is many records and anything else is one.
    `cursor` takes out what the next request sends as the query's `parameter`, beginning with `start`; while
    it moves, the next page is asked for at once. The answer's ETag and Last-Modified are sent back, and an
    equal answer to an equal request is not read twice. `identify` names a record: of those with one name only
    the first is taken, within the newest `remember` records; give it where answers overlap. `headers` is a
    mapping, or a function that makes one for each request. `trim` removes records from the log once they are
    committed; then an older savepoint cannot be restored.
    """

    promise = Promise(EXACTLY_ONCE, "answers lie in a log, and can be read again from the number in it")
    resumes = True

    def __init__(
        self,
        url: str,
        *,
        every: Duration = 60.0,
        records: Callable[[Any], Sequence[Any]] = _records_of,
        cursor: Callable[[Any], str | int | None] | None = None,
        parameter: str = "since",
        start: str | int | None = None,
        identify: Callable[[Any], str] | None = None,
        remember: int = 10_000,
        headers: Headers | None = None,
        timeout: Duration = 30.0,
        trim: bool = True,
        name: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise GraphRefused(
                f"{redact_text(url)} is no address that can be asked: write https://host/path."
            )
        if remember < 0:
            raise GraphRefused(f"remember is {remember}; allowed: 0 and more.")
        self.name = name or parts.hostname
        self.url = url
        self.every_seconds = seconds_of("every", every)
        self.timeout_seconds = positive_seconds_of("timeout", timeout)
        self.parameter = parameter
        self.start = start
        self.remember = remember if identify is not None else 0
        self.trim = trim
        self._records = records
        self._cursor = cursor
        self._identify = identify
        self._headers = headers

    @property
    def partitions(self) -> Sequence[str]:
        """One: a service has one cursor."""
        return ["0"]

    def reads(self, partition: str) -> str:
        """What it reads, for people: the address without its query, which may hold a secret."""
        parts = urlsplit(self.url)
        return f"answers of {parts.scheme}://{parts.hostname}{parts.path}"

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> HttpReader:
        """Read from behind a number."""
        log = SourceLog(context, f"{self.name}:{partition}")
        state = await log.state()
        if after is not None and (state.last if state.lowest is None else state.lowest - 1) > int(after):
            raise SourceTrimmed(
                f"The log of {self.name} begins behind {after}, where this flow has come to: what lay "
                "between was removed behind a later commit. Restore a later savepoint, or use "
                "HttpPolling(trim=False)."
            )
        place = Place(**state.cursor) if state.cursor else Place(self.start)
        return HttpReader(self, log, int(after or 0), place, bounded=context.bounded)

    def request(self, place: Place) -> Request:
        """The request that asks for what follows a place."""
        headers = dict(self._headers() if callable(self._headers) else self._headers or {})
        headers.setdefault("Accept", "application/json")
        if place.etag is not None:
            headers["If-None-Match"] = place.etag
        if place.modified is not None:
            headers["If-Modified-Since"] = place.modified
        if place.cursor is None:
            return Request("GET", self.url, headers)
        scheme, host, path, query, _ = urlsplit(self.url)
        pairs = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != self.parameter]
        asked = urlencode([*pairs, (self.parameter, str(place.cursor))])
        return Request("GET", urlunsplit((scheme, host, path, asked, "")), headers)

    def answered(self, place: Place, reply: Reply) -> tuple[list[Found], Place]:
        """The records of an answer, and where to ask next."""
        digest = hashlib.sha256(reply.body).hexdigest()
        if digest == place.digest:
            return [], place
        try:
            document = msgspec.json.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FlowError(
                f"{self.reads('')} are no JSON: {error}. It began: {reply.excerpt(100)}"
            ) from None
        found = [(self._id_of(record), record) for record in self._records(document)]
        cursor = place.cursor
        if self._cursor is not None:
            following = self._cursor(document)
            cursor = place.cursor if following is None else following
        if cursor != place.cursor:
            # The marks and the digest are of another request.
            return found, Place(cursor)
        headers = reply.headers
        return found, Place(cursor, headers.get("etag"), headers.get("last-modified"), digest)

    def _id_of(self, record: Any) -> str | None:
        return None if self._identify is None else str(self._identify(record))


class Place(NamedTuple):
    """Where a source asks next: the cursor, and what is known of the answer there."""

    cursor: str | int | None = None
    etag: str | None = None
    modified: str | None = None
    digest: str | None = None


class HttpReader:
    """Asks in the background, and reads the log."""

    def __init__(
        self, source: HttpPolling, log: SourceLog, after: int, place: Place, *, bounded: bool
    ) -> None:
        self._source = source
        self._log = log
        self._last = after
        self._place = place
        self._bounded = bounded
        self._client = HttpClient(connections_max=1, reply_seconds=source.timeout_seconds)
        self._asking: asyncio.Task[bool] | None = None
        self._asks_at = 0.0
        self._failures = 0
        self._is_current = False
        """Whether the newest answer had nothing new."""

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next records; an empty chunk when none arrived in time."""
        deadline = time.monotonic() + wait_seconds
        while True:
            entries = await self._log.read(self._last, limit)
            if entries:
                self._last = entries[-1].number
                return Chunk([entry.content for entry in entries], [entry.number for entry in entries])
            if self._is_current and self._bounded and self._asking is None:
                return Chunk((), (), ended=True)
            await self._ask(deadline)
            if time.monotonic() >= deadline and self._asking is not None:
                return Chunk((), ())
            if self._asking is None and time.monotonic() < self._asks_at and time.monotonic() >= deadline:
                return Chunk((), ())

    async def acknowledge(self, offset: Offset) -> None:
        """Remove records that are committed, except for those that are remembered by their names."""
        if self._source.trim:
            await self._log.trim(int(offset) - self._source.remember)

    async def lag(self, count: int) -> int | None:
        """How many records of the log wait; the service knows what else there is."""
        return max(0, self._log.last - self._last)

    async def close(self) -> None:
        """End the request under way and close the connection."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await self._client.close()

    async def _ask(self, deadline: float) -> None:
        """Ask if it is time, and wait for the answer until the deadline."""
        now = time.monotonic()
        if self._asking is None:
            if now < self._asks_at:
                await asyncio.sleep(max(0.0, min(self._asks_at, deadline) - now))
                return
            self._asking = asyncio.create_task(self._exchange(), name="fencepost-http-polling")
        await asyncio.wait([self._asking], timeout=max(0.0, deadline - now))
        if self._asking.done():
            asking, self._asking = self._asking, None
            self._is_current = not await asking

    async def _exchange(self) -> bool:
        """One request; whether there may be more right now."""
        source = self._source
        try:
            reply = await self._client.exchange(source.request(self._place))
        except (NotSent, MaybeSent) as error:
            if isinstance(error.__cause__, ValueError):
                raise FlowError(f"{source.reads('')} cannot be asked for: {error}") from error
            return self._later(failure_name(error), None)
        if reply.status in _LATER:
            return self._later(f"status {reply.status}", _seconds(reply.headers.get("retry-after")))
        self._failures = 0
        self._asks_at = time.monotonic() + source.every_seconds
        if reply.status in {204, 304}:
            return False
        if reply.status != 200:
            raise FlowError(
                f"{source.reads('')}: it answered {reply.status}: {reply.excerpt()} Check the address, and "
                "the login in headers=. A redirect is not followed: name the address that it leads to."
            )
        found, following = source.answered(self._place, reply)
        if following == self._place:
            return False
        moves = following.cursor != self._place.cursor
        added = await self._log.append(found, following._asdict())
        self._place = following
        if moves and found:
            # There may be another page.
            self._asks_at = 0.0
        return added > 0 or (moves and bool(found))

    def _later(self, why: str, retry_after: float | None) -> bool:
        self._failures += 1
        wait = retry_after if retry_after is not None else RETRIES.seconds(self._failures)
        self._asks_at = time.monotonic() + wait
        _log.warning(
            "flow_source_unavailable",
            source=self._source.name,
            failures=self._failures,
            error=why,
            retry_seconds=round(wait, 3),
        )
        return True


def _seconds(value: str | None) -> float | None:
    return min(float(value), RETRY_AFTER_MAX) if value is not None and value.strip().isdigit() else None

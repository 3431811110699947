"""Workers listed in etcd: one key for each worker, removed when its lease ends.

Uses etcd's own JSON gateway (v3), so no other client is needed. Every request may be repeated: a lease whose
grant was never received ends by itself.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from operator import attrgetter
from typing import Any, Self, cast
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter

from fencepost.errors import InvalidInput, ServerUnavailable
from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply, Request
from fencepost_judge._discovery import ListedWorker, Load, Registration, RegistrationLost, WorkerInfo

PREFIX = "/fencepost/judge/workers/"
PORT = 2379
REPLY_SECONDS = 5.0
TIMES = ("entered_at", "seen_at", "expires_at")
FIGURES = tuple(map(attrgetter, ("slots", "processors", "busy", "running", "load_average")))
FIGURE_MAX = 1_000_000
LISTED_MAX = 1000
VALUE_BYTES_MAX = 16_384
WORKER = TypeAdapter(ListedWorker)
UNAUTHENTICATED = 16
NOT_FOUND = 5
_WHOLE = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """Where etcd is: `etcd://[user:password@]host[:port][,host…]`, with etcds:// for TLS."""

    endpoints: tuple[str, ...]
    user: str | None
    password: str | None

    @classmethod
    def read(cls, url: str) -> Self:
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        credentials, _, hosts = parts.netloc.rpartition("@")
        user, _, password = credentials.partition(":")
        scheme = {"etcd": "http", "etcds": "https"}.get(parts.scheme)
        names = [name for name in hosts.split(",") if name]
        if scheme is None or not names or parts.path not in ("", "/"):
            raise InvalidInput("It must be `etcd://host:port`, or etcds:// for TLS.", field="JUDGE_DISCOVERY")
        return cls(
            tuple(f"{scheme}://{name if _has_port(name) else f'{name}:{PORT}'}" for name in names),
            unquote(user) or None,
            unquote(password) or None,
        )


class EtcdDirectory:
    """Use as a context manager: it keeps a connection."""

    def __init__(self, address: EtcdAddress, *, lease_seconds: float) -> None:
        self._address = address
        # etcd counts in whole seconds.
        self._lease_seconds = max(1, ceil(lease_seconds))
        self._http = HttpClient(connections_max=4, reply_seconds=REPLY_SECONDS)
        self._endpoints = list(address.endpoints)
        self._pass: str | None = None
        self._info: WorkerInfo | None = None
        self._entered_at = datetime.now(UTC)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def enter(self, info: WorkerInfo) -> Registration:
        granted = await self._ask("/v3/lease/grant", {"TTL": self._lease_seconds})
        registration = Registration(info.owner, 0, number_in(granted, "ID"))
        self._info, self._entered_at = info, datetime.now(UTC)
        await self._write(registration, Load())
        return registration

    async def beat(self, registration: Registration, load: Load) -> None:
        kept = await self._ask("/v3/lease/keepalive", {"ID": str(registration.token)})
        if number_in(kept.get("result"), "TTL", left_out=0) <= 0:
            raise RegistrationLost(f"etcd knows no lease {registration.token} any more.")
        await self._write(registration, load)

    async def leave(self, registration: Registration) -> None:
        """Revoking the lease removes its key."""
        await self._ask("/v3/lease/revoke", {"ID": str(registration.token)}, absent={})

    async def workers(self) -> Sequence[ListedWorker]:
        end = PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1)
        found = await self._ask("/v3/kv/range", {"key": _coded(PREFIX), "range_end": _coded(end)})
        return workers_in(found)

    async def _write(self, registration: Registration, load: Load) -> None:
        assert self._info is not None, "a worker reports only after it has registered"
        now = datetime.now(UTC)
        value = {
            **asdict(self._info),
            **asdict(load),
            "entered_at": self._entered_at.isoformat(),
            "seen_at": now.isoformat(),
            "expires_at": (now + timedelta(seconds=self._lease_seconds)).isoformat(),
        }
        key = _coded(PREFIX + self._info.owner)
        body = {"key": key, "value": _coded(json.dumps(value)), "lease": str(registration.token)}
        await self._ask("/v3/kv/put", body)

    async def _ask(self, path: str, body: Mapping[str, Any], *, absent: Any = None) -> Any:
        """The answer of the first endpoint that answers. `absent` is returned when the lease does not
        exist."""
        if self._address.user is not None and self._pass is None:
            await self._log_in()
        reply = await self._send(path, body)
        # An auth token expires after some minutes without use, and when its server restarts.
        if code_of(reply) == UNAUTHENTICATED and self._address.user is not None:
            await self._log_in()
            reply = await self._send(path, body)
        if code_of(reply) == NOT_FOUND:
            if absent is not None:
                return absent
            raise RegistrationLost(f"etcd knows no such lease: {reply.excerpt()}")
        answer = _document(reply)
        if reply.status != 200 or answer is None:
            raise ServerUnavailable(f"etcd answers {reply.status} to {path}: {reply.excerpt()}")
        return answer

    async def _log_in(self) -> None:
        self._pass = None
        body = {"name": self._address.user, "password": self._address.password or ""}
        reply = await self._send("/v3/auth/authenticate", body)
        answer = _document(reply)
        if reply.status != 200 or answer is None or not isinstance(answer.get("token"), str):
            raise ServerUnavailable(f"etcd refuses the login of {self._address.user}: status {reply.status}.")
        self._pass = str(answer["token"])

    async def _send(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Tries the endpoint that answered last first."""
        headers = {"Content-Type": "application/json"}
        if self._pass is not None:
            headers["Authorization"] = self._pass
        wrong = ""
        for endpoint in tuple(self._endpoints):
            request = Request("POST", f"{endpoint}{path}", headers, json.dumps(body).encode())
            try:
                reply = await self._http.exchange(request)
            except (NotSent, MaybeSent) as error:
                wrong = str(error)
            else:
                if reply.status < 500:
                    return reply
                wrong = f"{endpoint} answers {reply.status}: {reply.excerpt()}"
            self._endpoints.remove(endpoint)
            self._endpoints.append(endpoint)
        raise ServerUnavailable(f"etcd cannot be reached: {wrong}")


def _has_port(name: str) -> bool:
    return name.rpartition("]")[2].rpartition(":")[2].isdigit() and ":" in name.rpartition("]")[2]


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def code_of(reply: Reply) -> int:
    """The gRPC code of an error; 0 if there is none."""
    answer = _document(reply) if reply.status != 200 else None
    code = answer.get("code", 0) if answer else 0
    return code if isinstance(code, int) else 0


def number_in(answer: Any, name: str, *, left_out: int | None = None) -> int:
    """A 64-bit number, which the gateway writes as text. `left_out` is the default, because the gateway
    omits 0."""
    given = cast("dict[str, Any]", answer).get(name, left_out) if isinstance(answer, dict) else None
    if not _WHOLE.fullmatch(str(given)) or abs(int(str(given))) >= 1 << 63:
        raise ServerUnavailable(f"etcd's answer is not a lease: it has no {name}.")
    return int(str(given))


def workers_in(found: Mapping[str, Any]) -> list[ListedWorker]:
    """The workers in a range of keys. The gateway omits empty fields."""
    given = found.get("kvs", [])
    pairs = cast("list[object]", given) if isinstance(given, list) else []
    read = (_worker(cast("dict[str, Any]", pair)) for pair in pairs[:LISTED_MAX] if isinstance(pair, dict))
    return sorted((worker for worker in read if worker), key=lambda one: (one.entered_at, one.owner))


def _document(reply: Reply) -> Mapping[str, Any] | None:
    answer = reply.json()
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else None


def _worker(pair: Mapping[str, Any]) -> ListedWorker | None:
    """None for a value that is not a worker under its own key: other clients may write there too."""
    try:
        key, value = (base64.b64decode(pair.get(name, "")) for name in ("key", "value"))
        if len(value) > VALUE_BYTES_MAX:
            return None
        found = json.loads(value, parse_constant=_refuse)
        # No page could show half of a character.
        json.dumps(found, ensure_ascii=False).encode()
        worker = WORKER.validate_python({**found, "state": "alive"})
    except (ValueError, TypeError, RecursionError):
        return None
    if key != (PREFIX + worker.owner).encode():
        return None
    if not all(0 <= figure(worker) <= FIGURE_MAX for figure in FIGURES):
        return None
    # Times without a zone cannot be compared with ours.
    return worker if all(getattr(worker, name).tzinfo for name in TIMES) else None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no figure")

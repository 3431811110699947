"""Players over HTTP: requests sent one to three times to nodes that die, until each copy has its answer.

The answers make the model: a player holds what was answered, each request counted once.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, LiteralString, cast
from urllib.parse import urlsplit

from fastapi import FastAPI

from fencepost import Fencepost
from fencepost.kernel.drivers import run
from fencepost.logs import configure_logging
from fencepost.testing import Breach
from fencepost_players import _queries as queries
from fencepost_players import _rules as rules
from fencepost_players import catalog
from fencepost_players._api import make_router
from fencepost_players.mutations.planning import mutations_of
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.service import Players as PlayersService
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from fencepost_torture._child_setup import PATIENT, until_told_to_end
from fencepost_torture._cpu_time import CpuTime
from fencepost_torture._effects import exactly_once
from fencepost_torture._system_environment import INSIST_SECONDS, Account, ProcessTask, SystemEnvironment

CROWD = 12
COPIES_MAX = 3
REPLY_SECONDS = 10.0
AGAIN = {409, 503}
UNKNOWN, NO_PLAYER = 0, -1

CREATE: LiteralString = """
    select fencepost.player_execute('player:p' || n, 'create', 'd', null, 'CreatePlayer', null, null,
      jsonb_build_object('create', true, 'parties', jsonb_build_array(jsonb_build_object(
        'player', 'p' || n, 'change', '{"resources": {"gold": 1000000}}'::jsonb))))
    from generate_series(0, %s - 1) n
"""
# A transfer has a record on both sides; the giver's is the one with the loss.
RECORDS: LiteralString = """
    select player_id || '/' || request_id from fencepost.player_audit
    where request_id <> 'create' and (method <> 'Transfer' or (changes #>> '{resources,gold}')::int < 0)
"""


@dataclass(frozen=True)
class PlayerRequestCopy:
    """One request: what it takes from one player and gives to another."""

    player: str
    request: str
    path: str
    body: Mapping[str, Any]
    other: str | None = None

    @property
    def name(self) -> str:
        return f"{self.player}/{self.request}"


@dataclass
class Answers:
    """The answers to the copies of one request, so far."""

    wish: PlayerRequestCopy
    copies: int
    heard: list[Future[Any]] = field(default_factory=list[Future[Any]])


class PlayersSystem:
    """Nodes of the service, and callers that repeat a request until it is answered."""

    name = "players"
    processes = 2
    uses_redis = True
    bears_clock_jumps = True
    points = (
        "mutations.after_announce",
        "mutations.after_look",
        "mutations.before_execute",
        "mutations.after_commit",
        "mutations.after_answer",
    )

    def load(self) -> None:
        """Makes the routes, which takes longer than all else that a node does before its first answer."""
        _app()
        for protocol in ("uvicorn.lifespan.on", "uvicorn.protocols.http.h11_impl"):
            import_module(protocol)

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        self._begun = 0
        self._asked: list[str] = []
        self._differing: list[str] = []
        self._hearing = threading.Lock()
        self._failure: BaseException | None = None
        self._model: dict[str, Counter[str]] = {f"p{n}": Counter(gold=1_000_000) for n in range(CROWD)}
        self._folder = env.directory
        with env.database.connect() as connection:
            run(connection, queries.define("resource", "gold", catalog.Resource()))
            run(connection, queries.define("resource", "gem", catalog.Resource()))
            connection.execute(CREATE, (CROWD,))
        self._is_over = False
        with ThreadPoolExecutor(CROWD * COPIES_MAX, "torture-crowd") as self._crowd:
            try:
                yield {"folder": str(env.directory)}
            finally:
                # After an interrupted run no node answers: a caller that still waits would wait for a minute.
                self._is_over = True

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        ending = until_told_to_end()
        fp = Fencepost(task.database_url, redis_url=task.redis_url, settings=PATIENT)
        app, node = _app()
        # Short, because the callers wait for a dead node's announcement to expire.
        node.service = PlayersService(fp, MutationSettings(pending_seconds=0.5, cache_wait_seconds=0.2))
        server = WebServer(app, address="127.0.0.1", port=0)
        server.start()
        address = Path(task.more["folder"]) / f"node-{task.place}"
        draft = address.with_suffix(f".{task.boot}")
        draft.write_text(server.url)
        draft.replace(address)
        ending.wait()
        server.stop()

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        """A request of every player; each copy goes to one node after another, until one answers.

        It does not wait for the slowest of them: the load generator bounds how much is open.
        """
        for n in range(CROWD):
            wish = make_wish(env.chance, f"p{n}", f"w{turn}")
            answers = Answers(wish, copies=env.chance.randrange(1, COPIES_MAX + 1))
            self._begun += 1
            for copy in range(answers.copies):
                sent = self._crowd.submit(self._send, env, wish, first_node=turn + copy)
                sent.add_done_callback(partial(self._hear, answers))

    def account(self, env: SystemEnvironment) -> Account:
        if self._failure is not None:
            raise self._failure
        return Account(self._begun, len(self._asked))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        yield from exactly_once(self._asked, [name for (name,) in env.rows(RECORDS)])
        yield from (Breach("one answer", name, "was answered in two ways") for name in self._differing)
        with env.database.connect() as connection:
            for player, model in self._model.items():
                found = run(connection, queries.state(player))
                held = Counter[str](found.state["resources"]) if found else Counter[str]()
                if held != +model:
                    yield Breach("holds what was answered", player, f"holds {dict(held)}, not {dict(model)}")
                for discrepancy in run(connection, queries.audit_check(player)):
                    yield Breach("audit", player, str(discrepancy))

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        return ()

    def _hear(self, answers: Answers, sent: Future[Any]) -> None:
        """A request is done when its last copy is answered."""
        with self._hearing:
            answers.heard.append(sent)
            if len(answers.heard) < answers.copies:
                return
            failures = [error for copy in answers.heard if (error := copy.exception()) is not None]
            if failures:
                self._failure = failures[0]
                return
            told = {json.dumps(copy.result(), sort_keys=True) for copy in answers.heard}
            if len(told) != 1:
                self._differing.append(answers.wish.name)
            self._believe(answers.wish)
            self._asked.append(answers.wish.name)

    def _send(self, env: SystemEnvironment, wish: PlayerRequestCopy, *, first_node: int) -> Any:
        """Send one copy to one node after another, until one of them answers."""
        clock = CpuTime()
        for turn in itertools.count(first_node):
            node = turn % self.processes
            began = time.monotonic()
            operation = env.operation_log.begin("request", wish.name)
            try:
                status, answer = _post(
                    (self._folder / f"node-{node}").read_text(),
                    f"/players/{wish.player}/{wish.path}",
                    {**wish.body, "request_id": wish.request},
                )
            except (FileNotFoundError, ConnectionRefusedError):
                status, answer = NO_PLAYER, None
            except (OSError, http.client.HTTPException, ValueError):
                status, answer = UNKNOWN, None
            if status != UNKNOWN:
                env.operation_log.end(operation, answer if status == 200 else status)
            if status == 200:
                return answer
            assert status in {UNKNOWN, NO_PLAYER, *AGAIN}, (wish, status, answer)
            clock.count(time.monotonic() - began)
            assert clock.seconds < INSIST_SECONDS, f"no node answers {wish}"
            assert not self._is_over, f"no node is left to answer {wish}"
            clock.sleep(0.05)
        raise AssertionError

    def _believe(self, wish: PlayerRequestCopy) -> None:
        for resource, count in wish.body["resources"].items():
            if wish.other is None:
                self._model[wish.player][resource] += count
            else:
                self._model[wish.player][resource] -= count
                self._model[wish.other][resource] += count


class PlayerCaller:
    """Stands for the service of each process, behind routes that all processes share."""

    def __init__(self) -> None:
        self.mutations = mutations_of(rules)
        self.service: PlayersService | None = None

    def run_service(self) -> AbstractAsyncContextManager[object]:
        return cast("AbstractAsyncContextManager[object]", self.running())

    def __getattr__(self, name: str) -> Any:
        assert self.service is not None, "no process is there yet"
        return getattr(self.service, name)


@cache
def _app() -> tuple[FastAPI, PlayerCaller]:
    """Made once, before there are processes: it has no connection, no event loop and no thread."""
    node = PlayerCaller()
    part = HttpService("players", make_router(cast("PlayersService", node)), node.run_service)
    return make_app([part], WebSettings(), opened_first=lambda: node.fp), node


def make_wish(chance: random.Random, player: str, request: str) -> PlayerRequestCopy:
    """A random request that always succeeds."""
    if chance.random() < 0.5:
        return PlayerRequestCopy(
            player, request, "grant-items", {"resources": {"gem": chance.randrange(1, 5)}}
        )
    other = chance.choice([f"p{n}" for n in range(CROWD) if f"p{n}" != player])
    body = {"to_player_id": other, "resources": {"gold": chance.randrange(1, 5)}}
    return PlayerRequestCopy(player, request, "transfer", body, other)


def _post(url: str, path: str, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=REPLY_SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


PLAYERS = PlayersSystem

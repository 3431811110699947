"""Runs the parts of the demo beside each other, and removes what they have made."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from fencepost import server_addresses
from fencepost.cli.database_reader import reading
from fencepost.cli.demo import DemoContext, DemoPart
from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.shutdown import Shutdown
from fencepost.cli.terminal import answer, answer_json, logs_json, remark
from fencepost.client import Fencepost
from fencepost.errors import FencepostError
from fencepost.kernel.call import Call, each
from fencepost.logs import configure_logging, get_logger
from fencepost.plugin import load, plugins
from fencepost.server_addresses import ServerAddresses
from fencepost.settings import Settings

_log = get_logger(__name__)
OWN_PARTS = ("fencepost.cli.demo._jobs:PART", "fencepost.cli.demo._flow:PART")
REPORT_SECONDS = 5.0
LOOK_SECONDS = 0.1
FAREWELL_SECONDS = 10.0
START_SECONDS = 120.0
LOCAL_HOSTS = ("", "localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    seconds: float | None
    seed: int
    only: tuple[str, ...]
    force: bool
    as_json: bool


def run(options: Options, ending: Shutdown | None = None) -> None:
    """Fill the system until a stop is requested."""
    settings = Settings.load()
    addresses = _running_system(settings)
    parts = _parts(options.only)
    _refuse_foreign(addresses, settings, parts, force=options.force)
    # The demo says itself what it does.
    level = settings.log_level if "LOG_LEVEL" in os.environ else "warning"
    configure_logging(level=level, form=settings.log_format)
    ending = ending or Shutdown()
    with ending.listening(), tempfile.TemporaryDirectory(prefix="fencepost-demo-") as folder:
        for part in parts:
            _make_tables(addresses, settings, part)
        run = _Run(parts, addresses, options, Path(folder))
        failed = asyncio.run(run.until(ending))
    remark("Stopped. `fencepost demo --clean` removes what it has made.")
    if failed:
        raise UserError(f"Parts that failed: {', '.join(sorted(failed))}. Their errors are above.")


def run_with_servers(options: Options) -> None:
    """The same, with a `fencepost up` in this directory that ends with it."""
    ending = Shutdown()
    with ending.listening(), _servers():
        run(options, ending)


def clean(options: Options) -> None:
    """Remove what demos have made, in one transaction."""
    settings = Settings.load()
    addresses = _running_system(settings)
    parts = _parts(options.only)
    _refuse_foreign(addresses, settings, (), force=options.force)
    with reading(
        addresses.migration_url, seconds=settings.connect_seconds, remedy=addresses.remedy
    ) as connection:
        _refuse_running(connection)
        before = {part.name: dict(connection.execute(part.counts).fetchall()) for part in parts}
        with connection.transaction():
            connection.execute("create temporary table demo_job (job_id bigint) on commit drop")
            # Other parts name their jobs, which the first part removes.
            for part in reversed(parts):
                if part.clean is not None:
                    connection.execute(part.clean.read_text().encode())
    _clean_redis(addresses, parts)
    if options.as_json or logs_json():
        answer_json({"removed": before}, indent=None)
        return
    for name, counts in before.items():
        answer(f"{name}: {f'removed {_words(counts)}' if any(counts.values()) else 'there was nothing'}")


class _Run:
    """One run of the demo."""

    def __init__(
        self, parts: Sequence[DemoPart], addresses: ServerAddresses, options: Options, folder: Path
    ) -> None:
        self._parts = parts
        self._addresses = addresses
        self._options = options
        self._folder = folder
        self._failed: list[str] = []
        self._as_json = options.as_json or logs_json()

    async def until(self, ending: Shutdown) -> list[str]:
        """Runs all parts until a stop is requested, or the time is over; returns those that failed."""
        self._announce()
        loop, run = asyncio.get_running_loop(), secrets.token_hex(3)
        end = loop.time() + (self._options.seconds or float("inf"))
        async with Fencepost(self._addresses.service_url, redis_url=self._addresses.redis_url) as fp:
            working = [asyncio.create_task(self._run(part, fp, run), name=part.name) for part in self._parts]
            working.append(asyncio.create_task(self._report(fp), name="report"))
            try:
                # A signal is heard by the thread that runs this loop, and does not wake it.
                while loop.time() < end and not ending.wait(0):  # noqa: ASYNC110
                    await asyncio.sleep(min(LOOK_SECONDS, max(0.0, end - loop.time())))
            finally:
                for task in working:
                    task.cancel()
                # Each part ends what it has started; one that does not is left to the end of this process.
                await asyncio.wait(working, timeout=FAREWELL_SECONDS)
        return self._failed

    async def _run(self, part: DemoPart, fp: Fencepost, run: str) -> None:
        context = DemoContext(
            fp=fp,
            addresses=self._addresses,
            # Each part decides by itself: which parts are installed does not change what the others do.
            chance=random.Random(f"{self._options.seed}/{part.name}"),  # noqa: S311 - No secrets.
            run=run,
            folder=self._folder,
            say=partial(self._say, part.name),
        )
        try:
            await part.run(context)
        except Exception as error:
            # Whatever a part raises, the others go on.
            _log.exception("demo_part_failed", part=part.name)
            self._failed.append(part.name)
            self._say(part.name, f"failed: {_first_of(error)}")

    async def _report(self, fp: Fencepost) -> None:
        """One line for each part, from time to time."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            for part in self._parts:
                try:
                    counts = dict(await fp.run(Call(part.counts, (), each(_count))))
                except (FencepostError, psycopg.Error) as error:
                    self._say(part.name, f"cannot be counted: {error}")
                else:
                    self._say(part.name, _words(counts), path=part.path, counts=counts)

    def _announce(self) -> None:
        for part in self._parts:
            self._say(part.name, part.about, path=part.path)
        endpoint = self._addresses.endpoint_url
        if endpoint is None or self._as_json:
            return
        for plugin in plugins().values():
            if plugin.announce is not None:
                for label, url in load(plugin.announce)(self._addresses, to_person=True).items():
                    answer(f"{label}: {url}")

    def _say(self, part: str, text: str, *, path: str | None = None, **fields: Any) -> None:
        endpoint = self._addresses.endpoint_url
        url = f"{endpoint}{path}" if path is not None and endpoint is not None else None
        now = datetime.now(UTC)
        if self._as_json:
            event = {"event": text, "part": part, "url": url, **fields}
            answer_json({**event, "timestamp": now.isoformat().replace("+00:00", "Z")}, indent=None)
        else:
            answer(f"{now.astimezone():%H:%M:%S}  {part:<8} {text}{f'  {url}' if url else ''}")


def _parts(only: Sequence[str]) -> list[DemoPart]:
    """The library's own first, then those of the plugins."""
    references = [*OWN_PARTS, *(one.demo for one in plugins().values() if one.demo is not None)]
    parts: list[DemoPart] = [load(reference) for reference in references]
    unknown = sorted(set(only) - {part.name for part in parts})
    if unknown:
        known = ", ".join(part.name for part in parts)
        raise UserError(f"There is no part {unknown[0]}; there are {known}.", ExitCode.USAGE)
    return [part for part in parts if not only or part.name in only]


def _running_system(settings: Settings) -> ServerAddresses:
    found = server_addresses.of_settings(settings) or server_addresses.read_note(settings.data_directory)
    if found is None:
        raise UserError(
            f"No `fencepost up` runs in {settings.data_directory}, and DATABASE_URL is not set. Run "
            "`fencepost up` in another terminal, or `fencepost demo --up`.",
            ExitCode.UNREACHABLE,
        )
    return found


def _refuse_foreign(
    addresses: ServerAddresses, settings: Settings, parts: Sequence[DemoPart], *, force: bool
) -> None:
    """A demo belongs on a database of its own, on this machine."""
    if force:
        return
    given = conninfo_to_dict(addresses.service_url)
    hosts = f"{given.get('host') or ''},{given.get('hostaddr') or ''}".split(",")
    foreign = [host for host in hosts if host not in LOCAL_HOSTS and not host.startswith(("/", "@"))]
    if foreign:
        raise UserError(
            f"The database is on {foreign[0]}, which is not this machine: others may work with it. "
            "--force fills it all the same."
        )
    ours = {
        "queues": [queue for part in _parts(()) for queue in part.queues],
        "channels": [channel for part in _parts(()) for channel in part.channels],
    }
    with reading(
        addresses.service_url, seconds=settings.connect_seconds, remedy=addresses.remedy
    ) as connection:
        for part in parts:
            if connection.execute(part.others, ours).fetchone() == (True,):
                raise UserError(
                    f"The database has data of {part.name} that no demo made. A demo changes none of it, but "
                    "its load, its alerts and its lines in every list disturb the work with it. Run it on a "
                    "database of its own: `fencepost demo --up` in an empty directory. --force runs it here."
                )


def _refuse_running(connection: psycopg.Connection[Any]) -> None:
    found = connection.execute(
        "select owner from fencepost.job_workers where 'demo' = any (queues)"
    ).fetchone()
    if found is not None:
        raise UserError(f"A demo runs: {found[0]} serves its queue. Stop it first, or wait for a minute.")


def _make_tables(addresses: ServerAddresses, settings: Settings, part: DemoPart) -> None:
    """Tables of the demo's own, which the services' role may use."""
    if not part.setup:
        return
    with reading(
        addresses.migration_url, seconds=settings.connect_seconds, remedy=addresses.remedy
    ) as connection:
        for table, statement in part.setup.items():
            with connection.transaction():
                connection.execute(statement.encode())
                grant = sql.SQL("grant select, insert, update, delete on {} to fencepost_app")
                connection.execute(grant.format(sql.Identifier(table)))


def _clean_redis(addresses: ServerAddresses, parts: Sequence[DemoPart]) -> None:
    """Entries of jobs that are gone would be refused at their claim; nothing reads them any more."""
    if addresses.redis_url is None:
        return
    from fencepost.jobs.settings import JobSettings  # noqa: PLC0415 - Needs an extra, as Redis does.
    from fencepost.redis_streams.connection import connect_sync  # noqa: PLC0415
    from fencepost.redis_streams.stream_names import PRIORITIES, stream_of  # noqa: PLC0415

    redis: Any = connect_sync(addresses.redis_url, reply_seconds=5)
    try:
        queues = [queue for part in parts for queue in part.queues if queue.startswith("demo")]
        keys = {
            stream_of(JobSettings.load().stream_key, queue, priority)
            for queue in queues
            for priority in range(len(PRIORITIES))
        }
        for pattern in (pattern for part in parts for pattern in part.redis_keys):
            keys.update(key.decode() if isinstance(key, bytes) else key for key in redis.scan_iter(pattern))
        for key in keys:
            # One by one: in a cluster they may lie in different slots.
            redis.unlink(key)
            redis.unlink(f"{key}:incarnation")
    finally:
        redis.close()


@contextmanager
def _servers() -> Generator[None]:
    """`fencepost up` as a process of its own, until the block ends."""
    if server_addresses.of_settings(Settings.load()) is not None:
        raise UserError("DATABASE_URL is set: --up is for the embedded servers.", ExitCode.USAGE)
    command = [sys.executable, "-c", "from fencepost.cli._app import main; main()", "up", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            code = process.wait(START_SECONDS)
            known = {int(one): one for one in ExitCode}.get(code, ExitCode.PROBLEM)
            raise UserError("`fencepost up` did not start; its error is above.", known)
        told: Mapping[str, Any] = json.loads(line)
        remark(f"Fencepost is up: {told['url'] or told['database']}")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=START_SECONDS)


def _count(name: str, count: int) -> tuple[str, int]:
    return name, int(count)


def _first_of(error: BaseException) -> BaseException:
    """The error itself, or the first of a group of tasks."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    return _first_of(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing yet"

"""Judges on hosts of their own: each host is a network namespace with its own name and workspace, and
reaches the bucket by its own address. Test data is fetched once for a host, checked by its digest, and
evicted by size."""

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from tests.acceptance.judge.judge_workers import BRISK
from tests.waiting_for import found

TEST_BYTES = 400_000
CACHE_BYTES = 3 * TEST_BYTES
"""Room for one problem, and not for two."""
PROGRAM = "print(len(input()))\n"
NUMBERS = itertools.count(os.getpid() % 100 * 100)


class Objects(ThreadingHTTPServer):
    """A bucket that counts which host has fetched which object."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("0.0.0.0", 0), _Answering)  # noqa: S104 - The namespaces reach it by their addresses.
        self.objects: dict[str, bytes] = {}
        self.fetched: Counter[tuple[str, str]] = Counter()


class _Answering(BaseHTTPRequestHandler):
    @property
    def _bucket(self) -> Objects:
        assert isinstance(self.server, Objects)
        return self.server

    def do_GET(self) -> None:
        content = self._bucket.objects.get(self._name)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if content is not None:
            self._bucket.fetched[str(self.client_address[0]), self._name] += 1
            self.wfile.write(content)

    def do_PUT(self) -> None:
        self._bucket.objects[self._name] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    @property
    def _name(self) -> str:
        return self.path.partition("?")[0].rpartition("/")[2]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - Named by the standard library.
        """The test says what it counted."""


@dataclass
class Host:
    """A namespace with one cable to ours."""

    number: int
    folder: Path
    judges: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    @property
    def name(self) -> str:
        return f"fencepost-host-{self.number}"

    @property
    def address(self) -> str:
        return f"10.{200 + self.number // 250 % 50}.{self.number % 250}.2"

    @property
    def ours(self) -> str:
        return f"{self.address.rpartition('.')[0]}.1"

    def open(self) -> None:
        cable = f"fp{self.number}"
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "cable", "netns", self.name)
        _run("ip", "addr", "add", f"{self.ours}/24", "dev", cable)
        _run("ip", "link", "set", cable, "up")
        for words in (f"addr add {self.address}/24 dev cable", "link set cable up", "link set lo up"):
            _run("ip", "-n", self.name, *words.split())

    def judge(self, url: str, port: int) -> None:
        """One more judge here. All judges of a host share its workspace."""
        code = f"from {__name__} import main; main()"
        command = f'hostname "{self.name}" && exec "$0" -c "$1" "$2" "$3" "$4"'
        words = ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", command, sys.executable]
        words += [code, url, str(self.folder), f"http://{self.ours}:{port}"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.judges.append(subprocess.Popen(words, env=environment))

    def close(self) -> None:
        for one in self.judges:
            one.kill()
            one.wait()
        subprocess.run(["ip", "netns", "del", self.name], check=False)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def settings_of(folder: Path, endpoint: str) -> JudgeSettings:
    return JudgeSettings(
        workspace=folder,
        store="s3://data/judge",
        s3_endpoint=endpoint,
        s3_region="us-east-1",
        s3_access_key="key",
        s3_secret_key="secret",
        slots=2,
        languages="python",
        cache_max_bytes=CACHE_BYTES,
    )


def main() -> None:
    """A judge, until it is killed."""
    url, folder, endpoint = sys.argv[1:]
    asyncio.run(_judge(url, Path(folder), endpoint))


async def _judge(url: str, folder: Path, endpoint: str) -> None:
    async with Fencepost(url, job_settings=BRISK) as fp:
        judging = Judging(fp, settings_of(folder, endpoint))
        async with judging.serving(), judging.working():
            await asyncio.Event().wait()


@contextmanager
def open_hosts(count: int, folder: Path) -> Generator[list[Host]]:
    for tool in ("ip", "unshare", "hostname"):
        if shutil.which(tool) is None:
            pytest.skip(f"hosts need the program {tool}: install iproute2, util-linux and hostname")
    with ExitStack() as closing:
        hosts: list[Host] = []
        for _ in range(count):
            host = Host(next(NUMBERS), folder / f"host-{len(hosts)}")
            closing.callback(host.close)
            try:
                host.open()
                _run("ip", "netns", "exec", host.name, "unshare", "--uts", "hostname", host.name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespace can be made here: {error.stderr.decode()[:200]}")
            hosts.append(host)
        yield hosts


@contextmanager
def open_objects() -> Generator[Objects]:
    with Objects() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@dataclass
class Contest:
    """Two large problems, and judges on hosts of their own."""

    judging: Judging
    database: Database
    hosts: list[Host]
    bucket: Objects

    async def judged_everywhere(self, slug: str) -> None:
        """Every host has judged it once more, and rightly."""
        left = {host.name for host in self.hosts}
        for _ in range(50):
            asked = [
                await self.judging.submit(slug, "python", {"main.py": PROGRAM}, author="ann")
                for _ in range(2 * len(self.hosts))
            ]
            for job_id in asked:
                verdict, _, host = (
                    # Ten judges that start at once on a busy machine take their time.
                    await found("it is judged", partial(self._ended, job_id), bool, within=600)
                ).partition(" ")
                assert verdict == "AC"
                left.discard(host)
            if not left:
                return
        raise AssertionError(f"{left} judged nothing")

    async def _ended(self, job_id: int) -> str:
        """The verdict and the host; empty while there is none."""
        with self.database.connect_admin() as connection:
            row = connection.execute(
                "select r.verdict, j.owner from fencepost.judge_result r join fencepost.jobs j using (job_id)"
                " where job_id = %s",
                (job_id,),
            ).fetchone()
        return f"{row[0]} {row[1].rpartition('@')[2].partition(':')[0]}" if row else ""

    def fetched(self, slug: str, host: Host) -> list[int]:
        """How often the host has fetched each large object of a problem."""
        large = [name for name, content in self.bucket.objects.items() if content.startswith(slug.encode())]
        assert len(large) == 2
        return [self.bucket.fetched[host.address, name] for name in large]

    def at_hand(self, host: Host) -> list[Path]:
        return [path for path in (host.folder / "host-data").iterdir() if path.is_file()]


@asynccontextmanager
async def open_contest(
    database: Database, folder: Path, *, hosts: int, judges: int
) -> AsyncGenerator[Contest]:
    with open_hosts(hosts, folder) as opened, open_objects() as bucket:
        port = bucket.server_address[1]
        async with Fencepost(database.url, job_settings=BRISK) as fp:
            judging = Judging(fp, settings_of(folder / "setter", f"http://127.0.0.1:{port}"))
            for slug in ("first", "second"):
                place = folder / slug
                place.mkdir()
                for test in range(2):
                    text = f"{slug}{test}".ljust(TEST_BYTES, "x")
                    (place / f"{test}.in").write_text(f"{text}\n")
                    (place / f"{test}.ans").write_text(f"{TEST_BYTES}\n")
                await judging.import_problem(place, time_limit_seconds=10)
            bucket.fetched.clear()
            for host in opened:
                for _ in range(judges):
                    host.judge(database.url, port)
            yield Contest(judging, database, opened, bucket)


@pytest.mark.parametrize(
    ("hosts", "judges"),
    [(2, 2), pytest.param(10, 1, marks=[pytest.mark.full, pytest.mark.timeout(1800)])],
)
async def test_a_host_fetches_test_data_once_checks_it_and_evicts_it(
    database: Database, tmp_path: Path, hosts: int, judges: int
) -> None:
    async with open_contest(database, tmp_path, hosts=hosts, judges=judges) as contest:
        await contest.judged_everywhere("first")
        assert [contest.fetched("first", host) for host in contest.hosts] == [[1, 1]] * hosts

        # What is damaged on a host is fetched again, by that host alone, and nothing is judged by it.
        damaged = contest.hosts[0]
        large = [path for path in contest.at_hand(damaged) if path.stat().st_size > TEST_BYTES]
        assert len(large) == 2
        for path in large:
            path.write_bytes(b"damaged")
        await contest.judged_everywhere("first")
        assert contest.fetched("first", damaged) == [2, 2]
        assert [contest.fetched("first", host) for host in contest.hosts[1:]] == [[1, 1]] * (hosts - 1)

        # The second problem has no room beside the first.
        await contest.judged_everywhere("second")
        assert [contest.fetched("second", host) for host in contest.hosts] == [[1, 1]] * hosts
        for host in contest.hosts:
            assert sum(path.stat().st_size for path in contest.at_hand(host)) <= CACHE_BYTES
        await contest.judged_everywhere("first")
        assert all(sum(contest.fetched("first", host)) > 2 for host in contest.hosts)

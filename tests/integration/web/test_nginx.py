"""A real nginx in front of a real server: as docs/how-to/proxies.md says, and misconfigured."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost_server.console._role import Role
from fencepost_server.web.settings import WebSettings
from tests.integration.console.env import ConsoleEnv, console, log_in

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
PAGE = Path(__file__).parents[3] / "docs/how-to/proxies.md"
TOKEN = "the-token-of-the-server"
BARE = "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {target}; }} }}"
"""What the first answer of a search engine says."""

pytestmark = pytest.mark.skipif(
    NGINX is None, reason="nginx is not installed; the package nginx of Debian or Ubuntu brings it"
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def documented(port: int, target: str, certificate: Path | None = None) -> str:
    """The page's own block with our addresses: without TLS, or with a certificate and the key beside it."""
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    block = found[1]
    assert "listen 8443 ssl;" in block
    assert "http://127.0.0.1:8080;" in block
    block = block.replace("http://127.0.0.1:8080", target)
    if certificate is None:
        block = re.sub(r"^\s*ssl_certificate.*\n", "", block, flags=re.MULTILINE)
        return block.replace("listen 8443 ssl;", f"listen 127.0.0.1:{port};")
    block = block.replace(" fencepost.pem", str(certificate))
    block = block.replace(" fencepost.key", str(certificate.with_suffix(".key")))
    return block.replace("listen 8443 ssl;", f"listen 127.0.0.1:{port} ssl;")


@contextmanager
def nginx(folder: Path, block: str, port: int) -> Generator[str]:
    """In the foreground, with all of its files in a folder of the test's."""
    assert NGINX is not None
    places = " ".join(
        f"{name}_temp_path {folder / name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon off; pid {folder / 'pid'}; error_log {folder / 'error.log'};\n"
        f"events {{}}\nhttp {{ access_log off; {places}\n{block}\n}}\n"
    )
    with subprocess.Popen([NGINX, "-p", folder, "-c", configuration], stderr=subprocess.DEVNULL) as process:
        try:
            Deadline(30, "nginx listens").wait(lambda: _listens(port) or process.poll() is not None)
            assert process.poll() is None, (folder / "error.log").read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Its workers are another account where we are root.
    for part in (tmp_path, *list(tmp_path.parents)[:2]):
        part.chmod(0o755)
    return tmp_path


@contextmanager
def behind(
    database: Database, folder: Path, web: WebSettings, *, bare: bool = False
) -> Generator[tuple[ConsoleEnv, httpx.Client]]:
    with ExitStack() as stack:
        env = stack.enter_context(console(database, web=web))
        port = free_port()
        block = BARE.format(port=port, target=env.url) if bare else documented(port, env.url)
        url = stack.enter_context(nginx(folder, block, port))
        yield env, stack.enter_context(httpx.Client(base_url=url, timeout=30))


def test_as_documented_the_console_works_and_knows_its_visitor(database: Database, folder: Path) -> None:
    web = WebSettings(token=TOKEN, proxies="127.0.0.1")
    with behind(database, folder, web) as (env, browser):
        assert browser.get("/openapi.json").status_code == 401
        assert browser.get(env.link(Role.ADMIN)).status_code == 303
        assert browser.get("/console").status_code == 200
        forged = {
            "x-forwarded-for": "203.0.113.9",
            "forwarded": "for=203.0.113.9",
            "x-real-ip": "203.0.113.9",
        }
        said = log_in(browser, "x", "wrong", headers=forged)
        assert said.status_code == 403
        assert "Name or password is wrong" in said.text
        host = urlsplit(str(browser.base_url)).netloc
        ours = log_in(browser, "y", "wrong", headers={"origin": f"http://{host}"})
        assert "Name or password is wrong" in ours.text
        with psycopg.connect(database.admin_url) as connection:
            rows = connection.execute("select distinct address from fencepost.account_attempt").fetchall()
        # nginx is asked from loopback here; what the client wrote is nowhere.
        assert rows == [("127.0.0.1",)]


def test_as_documented_events_come_at_once(database: Database, folder: Path) -> None:
    with behind(database, folder, WebSettings(token=TOKEN, proxies="127.0.0.1")) as (env, browser):
        bearer = {"authorization": f"Bearer {env.token(Role.VIEWER)}"}
        with browser.stream("GET", "/api/events", headers=bearer) as stream:
            assert next(stream.iter_lines()).startswith("retry:")


def test_as_documented_but_not_named_it_is_refused(database: Database, folder: Path) -> None:
    with behind(database, folder, WebSettings(token=TOKEN)) as (env, browser):
        assert browser.get(env.link(Role.ADMIN)).status_code == 403
        assert "HTTP_PROXIES" in browser.get("/console").json()["message"]
        assert browser.get("/readyz").status_code in {200, 404}


@pytest.mark.parametrize("bare", [True, False])
def test_without_a_token_nothing_is_local_behind_it(database: Database, folder: Path, bare: bool) -> None:
    """Also where nginx says nothing of itself: only the version of HTTP tells it from a local program."""
    with behind(database, folder, WebSettings(), bare=bare) as (env, browser):
        assert httpx.get(f"{env.url}/openapi.json").status_code == 200
        for path in ("/openapi.json", "/console/login", "/api/overview"):
            said = browser.get(path)
            assert said.status_code == 403, path
            assert "HTTP_TOKEN" in said.json()["message"]

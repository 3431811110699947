"""The pages behind HTTPS: a real nginx with a certificate, as docs/how-to/proxies.md says."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest

from fencepost.embedded import Database
from fencepost_server.console._role import Role
from fencepost_server.web.settings import WebSettings
from tests.browser.judge_site import judge_site
from tests.integration.console.env import PASSWORD, ConsoleEnv, console, form_token, log_in
from tests.integration.web.test_nginx import NGINX, TOKEN, documented, folder, free_port, nginx

__all__ = ["folder"]
pytestmark = pytest.mark.skipif(
    NGINX is None or shutil.which("openssl") is None,
    reason="nginx or openssl is not installed; packages of these names of Debian or Ubuntu bring them",
)
WEB = WebSettings(token=TOKEN, proxies="127.0.0.1")


@contextmanager
def https(folder: Path, target: str) -> Generator[httpx.Client]:
    """A client of an nginx that terminates TLS with a certificate of its own, which the client trusts."""
    certificate = folder / "fencepost.pem"
    words = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    command = ["openssl", *words.split(), "-keyout", str(folder / "fencepost.key"), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    port = free_port()
    trusted = ssl.create_default_context(cafile=str(certificate))
    with (
        nginx(folder, documented(port, target, certificate), port),
        httpx.Client(base_url=f"https://localhost:{port}", timeout=30, verify=trusted) as client,
    ):
        yield client


@contextmanager
def https_console(database: Database, folder: Path) -> Generator[tuple[ConsoleEnv, httpx.Client]]:
    with ExitStack() as stack:
        env = stack.enter_context(console(database, web=WEB))
        yield env, stack.enter_context(https(folder, env.url))


def binds_its_cookies(answer: httpx.Response) -> int:
    cookies = answer.headers.get_list("set-cookie")
    for cookie in cookies:
        attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {"secure", "httponly", "samesite=lax", "path=/"} <= attributes, cookie
    return len(cookies)


def stays_by_https(answer: httpx.Response) -> bool:
    location = urlsplit(answer.headers["location"])
    return location.scheme in {"", "https"} and location.netloc in {"", urlsplit(str(answer.url)).netloc}


def test_cookies_are_for_https_and_the_server_alone_and_the_browser_is_told_to_stay(
    database: Database, folder: Path
) -> None:
    with https_console(database, folder) as (env, browser):
        env.user(Role.ADMIN)
        page = browser.get("/console/login")
        entered = log_in(browser, Role.ADMIN.word, PASSWORD)
        shown = browser.get("/console")
        browser.headers["x-form-token"] = form_token(browser)
        out = browser.post("/console/logout")
        assert [one.status_code for one in (page, entered, shown, out)] == [200, 303, 200, 303]
        assert min(binds_its_cookies(one) for one in (entered, out)) >= 1
        for answer in (page, entered, shown, out, browser.get("/api/overview"), browser.get("/absent")):
            binds_its_cookies(answer)
            assert answer.headers["strict-transport-security"] == "max-age=31536000", answer.url
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
        assert "http://" not in shown.text.replace("http://www.w3.org/", "")
        assert browser.get("/console").status_code == 303, "the session has ended"


def test_redirects_stay_by_https_and_lead_to_pages_of_ours(database: Database, folder: Path) -> None:
    with https_console(database, folder) as (env, browser):
        env.user(Role.ADMIN)
        wanted = browser.get("/console/jobs?queue=a%20b")
        assert stays_by_https(wanted)
        assert wanted.headers["location"] == "/console/login?next=" + quote(
            "/console/jobs?queue=a%20b", safe=""
        )
        host = urlsplit(str(browser.base_url)).netloc
        for place in (
            f"http://{host}/console",
            f"//{host}/console",
            "https://evil.example/console",
            "/console/../../evil",
            "/console/%2e%2e/evil",
            "/\\evil.example",
        ):
            led = log_in(browser, Role.ADMIN.word, PASSWORD, next=place)
            assert (led.status_code, led.headers["location"]) == (303, "/console"), place
        led = log_in(browser, Role.ADMIN.word, PASSWORD, next="/console/jobs?queue=a%20b")
        assert led.headers["location"] == "/console/jobs?queue=a%20b"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://HOST"}, 303),
        ({"origin": "http://HOST"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 303),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_a_form_comes_from_a_page_of_this_site_by_https(
    database: Database, folder: Path, headers: dict[str, str], status: int
) -> None:
    with https_console(database, folder) as (env, browser):
        env.user(Role.ADMIN)
        host = urlsplit(str(browser.base_url)).netloc
        token = form_token(browser, "/console/login")
        fields = {"name": Role.ADMIN.word, "password": PASSWORD, "form_token": token}
        given = {name: value.replace("HOST", host) for name, value in headers.items()}
        assert browser.post("/console/login", data=fields, headers=given).status_code == status


def test_events_come_at_once(database: Database, folder: Path) -> None:
    with https_console(database, folder) as (env, browser):
        bearer = {"authorization": f"Bearer {env.token(Role.VIEWER)}"}
        with browser.stream("GET", "/api/events", headers=bearer) as stream:
            assert next(stream.iter_lines()).startswith("retry:")


def test_the_judge_behind_https(database: Database, folder: Path) -> None:
    """Its login, its cookies, a redirect, and the events of a submission."""
    with judge_site(database, folder, WEB) as site, https(folder, site.url) as browser:
        wanted = browser.get("/judge/contests")
        assert wanted.headers["location"] == "/judge/login?next=%2Fjudge%2Fcontests"
        fields = {"name": "con", "password": site.tokens["con"], "next": "/judge/contests"}
        fields["form_token"] = form_token(browser, "/judge/login")
        entered = browser.post("/judge/login", data=fields)
        assert (entered.status_code, entered.headers["location"]) == (303, "/judge/contests")
        assert binds_its_cookies(entered) >= 1
        browser.headers["x-form-token"] = form_token(browser, "/judge")
        program = {"problem_id": "fence-posts", "language": "python", "code": "print(1)"}
        sent = browser.post("/judge/submissions", data=program)
        assert sent.status_code == 303, sent.text[-500:]
        assert stays_by_https(sent)
        with browser.stream("GET", f"{sent.headers['location']}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert next(stream.iter_lines())

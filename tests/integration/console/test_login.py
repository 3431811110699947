"""Login by passwords, links, sessions and tokens; and what is refused."""

from __future__ import annotations

import pytest

from fencepost.embedded import Database
from fencepost.errors import SettingsError
from fencepost.kernel.drivers import run
from fencepost.testing import Clock
from fencepost_server.accounts.calls import audit_entries
from fencepost_server.accounts.login import WINDOW_SECONDS
from fencepost_server.console._role import ACCOUNTS, Role
from fencepost_server.web.settings import WebSettings
from tests.integration.console.env import CHEAP, PASSWORD, YES, ConsoleEnv, console, form_token, log_in

# What the settings say; the test itself listens on loopback.
BEYOND = WebSettings(address="192.0.2.1", token="0123456789abcdef")


def test_an_anonymous_visitor_is_sent_to_the_login_and_then_to_the_requested_page(env: ConsoleEnv) -> None:
    env.user(Role.VIEWER)
    with env.stranger() as client:
        sent = client.get("/console/jobs?state=dead")
        assert (sent.status_code, sent.headers["location"]) == (
            303,
            "/console/login?next=%2Fconsole%2Fjobs%3Fstate%3Ddead",
        )
        assert client.get("/api/jobs").status_code == 401
        answer = log_in(client, "viewer", PASSWORD, next="/console/jobs?state=dead")
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/jobs?state=dead")
        assert client.get("/console/jobs").status_code == 200


def test_a_login_leads_to_no_other_host(env: ConsoleEnv) -> None:
    env.user(Role.VIEWER)
    with env.stranger() as client:
        for evil in ("https://evil.example/", "//evil.example/console", "/console//evil", "/console\\evil"):
            answer = log_in(client, "viewer", PASSWORD, next=evil)
            assert answer.headers["location"] == "/console"


def test_a_wrong_password_and_an_unknown_name_get_one_answer(env: ConsoleEnv) -> None:
    env.user(Role.VIEWER)
    with env.stranger() as client:
        answers = [log_in(client, name, "not this one at all") for name in ("viewer", "nobody")]
        assert [one.status_code for one in answers] == [403, 403]
        assert all("Name or password is wrong." in one.text for one in answers)
        assert "fencepost_session" not in client.cookies


def test_the_eleventh_attempt_waits_though_its_password_is_right(env: ConsoleEnv) -> None:
    env.user(Role.VIEWER)
    with env.stranger() as client:
        for _ in range(10):
            assert log_in(client, "viewer", "wrong").status_code == 403
        refused = log_in(client, "viewer", PASSWORD)
        assert refused.status_code == 429
        assert "Too many attempts" in refused.text
    entries = env.call(audit_entries(actor="viewer", before=None, limit=20))
    assert [entry.outcome for entry in entries if entry.action == "login"] == ["wrong password"] * 10


def test_guessed_passwords_lock_no_known_browser_out(env: ConsoleEnv) -> None:
    env.user(Role.VIEWER)
    with env.stranger() as owner:
        assert log_in(owner, "viewer", PASSWORD).status_code == 303
        owner.cookies.delete("fencepost_session")
        for _ in range(10):
            env.call(ACCOUNTS.begin_login("viewer", "192.0.2.1", window_seconds=WINDOW_SECONDS))
        with env.stranger() as another:
            assert log_in(another, "viewer", PASSWORD).status_code == 429
            # Its cookie is of one user, and cannot be made up.
            another.cookies.set("fencepost_known", '"a viewer".AAAA.AAAA')
            assert log_in(another, "viewer", PASSWORD).status_code == 429
        assert log_in(owner, "viewer", PASSWORD).status_code == 303
        assert owner.get("/console").status_code == 200


def test_wrong_passwords_from_a_known_browser_wait_longer_each_time(env: ConsoleEnv, clock: Clock) -> None:
    env.user(Role.VIEWER)

    def attempt() -> float | None:
        call = ACCOUNTS.begin_login_known("viewer", "browser", window_seconds=WINDOW_SECONDS)
        return env.call(call).wait_seconds

    assert [attempt() for _ in range(3)] == [None] * 3
    for seconds in (2, 4, 8, 16, 32, 60, 60):
        assert attempt() == seconds
        clock.advance(seconds)
        assert attempt() is None
    env.call(ACCOUNTS.end_login("viewer", "192.0.2.1", right=True, rehashed=None))
    assert attempt() is None


def test_the_fifty_first_attempt_from_an_address_waits_whatever_its_name_until_the_window_has_passed(
    env: ConsoleEnv, clock: Clock
) -> None:
    def attempt(name: str, address: str) -> float | None:
        return env.call(ACCOUNTS.begin_login(name, address, window_seconds=WINDOW_SECONDS)).wait_seconds

    assert [attempt(f"user{number}", "192.0.2.1") for number in range(50)] == [None] * 50
    assert attempt("another", "192.0.2.1") == WINDOW_SECONDS
    assert attempt("another", "192.0.2.2") is None
    clock.advance(WINDOW_SECONDS + 1)
    assert attempt("another", "192.0.2.1") is None


def test_a_session_ends_when_it_is_idle_and_when_its_time_is_over(env: ConsoleEnv, clock: Clock) -> None:
    idle, whole = env.context.settings.idle_minutes * 60, env.context.settings.session_hours * 3600
    with env.visitor(Role.VIEWER) as forgetful, env.visitor(Role.VIEWER) as busy:
        for _ in range(int(whole // (idle - 60))):
            clock.advance(idle - 60)
            assert busy.get("/console/account").status_code == 200
        clock.advance(whole % (idle - 60))
        assert busy.get("/console/account").status_code == 303
        assert forgetful.get("/console/account").status_code == 303
    with env.visitor(Role.VIEWER) as forgetful:
        clock.advance(idle)
        assert forgetful.get("/console/account").status_code == 303


def test_a_link_and_a_token_end_with_their_time(env: ConsoleEnv, clock: Clock) -> None:
    early, late = env.link(Role.ADMIN), env.link(Role.ADMIN)
    with env.program(Role.VIEWER) as program, env.stranger() as stranger:
        clock.advance(59)
        assert stranger.get(early).status_code == 303
        clock.advance(1)
        assert stranger.get(late).status_code == 403
        clock.advance(539)
        assert program.get("/api/account").status_code == 200
        clock.advance(1)
        assert program.get("/api/account").status_code == 401


def test_a_link_lets_in_once(env: ConsoleEnv) -> None:
    link = env.link(Role.ADMIN)
    with env.stranger() as first, env.stranger() as second:
        assert first.get(link).status_code == 303
        assert second.get(link).status_code == 403
        assert first.get("/console").status_code == 200
        assert second.get("/console").status_code == 303


def test_the_cookie_is_for_the_server_alone_and_cannot_be_made_up(env: ConsoleEnv) -> None:
    with env.stranger() as client:
        cookie = client.get(env.link(Role.ADMIN)).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        value = client.cookies["fencepost_session"]
        client.cookies.clear()
        client.cookies.set("fencepost_session", value.swapcase())
        assert client.get("/console").status_code == 303


def test_a_user_that_logs_out_or_is_locked_has_no_access(env: ConsoleEnv) -> None:
    with env.visitor(Role.VIEWER) as client:
        stolen = client.cookies["fencepost_session"]
        assert client.post("/console/logout").status_code == 303
        client.cookies.set("fencepost_session", stolen)
        assert client.get("/console").status_code == 303
    with env.visitor(Role.OPERATOR) as client, env.program(Role.OPERATOR) as program:
        # Making the token's user anew has ended the session.
        assert client.get("/console").status_code == 303
        assert program.get("/api/jobs").status_code == 200
        env.call(ACCOUNTS.disable_user("operator", "test"))
        assert program.get("/api/jobs").status_code == 401


def test_a_form_without_its_token_does_nothing(env: ConsoleEnv) -> None:
    with env.visitor(Role.OPERATOR) as client:
        good = client.headers.pop("x-form-token")
        assert client.post("/console/queues/mail/pause", data=YES).status_code == 403
        assert client.post("/console/queues/mail/pause", data={"form_token": "made up"}).status_code == 403
        assert client.post("/api/queues/mail/pause").status_code == 403
        assert client.get("/api/queues").json()["queues"] == []
        assert client.post("/console/queues/mail/pause", data={"form_token": good, **YES}).status_code == 303
        assert client.get("/api/queues").json()["queues"][0]["paused"]


def test_a_login_that_another_site_began_is_refused(env: ConsoleEnv) -> None:
    """Otherwise a link could log a browser in as another person, who then reads what its owner does."""
    env.user(Role.VIEWER)
    form = {"name": "viewer", "password": PASSWORD}
    with env.stranger() as client, env.stranger() as other:
        for token in ("", "made up", form_token(other, "/console/login")):
            assert client.post("/console/login", data=form | {"form_token": token}).status_code == 403
        assert "fencepost_session" not in client.cookies
        assert log_in(client, "viewer", PASSWORD).status_code == 303


def test_another_sessions_token_is_worth_nothing(env: ConsoleEnv) -> None:
    with env.visitor(Role.OPERATOR) as one, env.visitor(Role.OPERATOR) as other:
        one.headers["x-form-token"] = form_token(other)
        assert one.post("/console/queues/mail/pause").status_code == 403


def test_a_token_is_at_most_its_user_and_ends_when_revoked(env: ConsoleEnv) -> None:
    with env.visitor(Role.VIEWER) as client:
        made = client.post("/api/account/tokens", json={"label": "ci", "role": "admin"}).json()
        assert client.get("/api/account").json()["tokens"][0]["role"] == "viewer"
        with env.stranger() as program:
            program.headers["authorization"] = f"Bearer {made['secret']}"
            assert program.get("/api/jobs").status_code == 200
            assert program.get("/api/users").status_code == 403
            assert program.post("/api/account/tokens", json={"label": "child"}).status_code == 403
            assert client.post(f"/api/account/tokens/{made['token_id']}/revoke").status_code == 200
            assert program.get("/api/jobs").status_code == 401


def test_beyond_loopback_it_does_not_start_without_an_admin(database: Database) -> None:
    with pytest.raises(SettingsError, match="no administrator"), console(database, web=BEYOND):
        pass


def test_beyond_loopback_an_admin_needs_no_house_token_and_the_rest_does(database: Database) -> None:
    with database.connect() as connection:
        run(connection, ACCOUNTS.set_user("ada", Role.ADMIN, CHEAP.hash(PASSWORD), "test", by_service=False))
    with console(database, web=BEYOND) as env:
        with env.stranger() as client:
            assert client.get("/console/login").status_code == 200
            assert client.get("/openapi.json").status_code == 401
        with env.visitor(Role.VIEWER) as client:
            assert client.get("/api/jobs").status_code == 200

"""Webhooks in the console and its API: who may register, and what is shown of a secret."""

from __future__ import annotations

from fencepost_server.console._role import Role
from tests.integration.console.env import YES, ConsoleEnv

AUDIT = {"name": "audit", "url": "https://audit.example/key-in-path?key=in-query", "topics": ["orders"]}


def test_an_admin_registers_and_rotates_and_sees_each_secret_once(env: ConsoleEnv) -> None:
    with env.visitor(Role.ADMIN) as client:
        form = {**AUDIT, "topics": "orders"}
        shown = client.post("/console/webhooks", data=form)
        assert shown.status_code == 200
        assert "whsec_" in shown.text
        assert shown.headers["cache-control"] == "no-store"
        secret = client.post("/api/webhooks/audit/rotate", json={"overlap_seconds": 60}).json()["secret"]
        assert secret.startswith("whsec_")
        pages = "".join(
            client.get(path).text
            for path in ("/console/webhooks", "/api/webhooks", "/console/audit", "/api/audit")
        )
        assert "https://audit.example" in pages
        assert not any(word in pages for word in ("whsec_", "key-in-path", "in-query"))
        assert client.post("/api/webhooks/audit/change", json={"topics": []}).json()["message"]
        assert client.post("/console/webhooks/audit/remove", data=YES).status_code == 303
        assert client.get("/api/webhooks").json()["webhooks"] == []


def test_an_operator_pauses_and_does_not_register(env: ConsoleEnv) -> None:
    with env.visitor(Role.ADMIN) as admin:
        admin.post("/api/webhooks", json=AUDIT)
    with env.program(Role.OPERATOR) as operator:
        assert operator.post("/api/webhooks", json={**AUDIT, "name": "mine"}).status_code == 403
        assert operator.post("/api/webhooks/audit/rotate", json={}).status_code == 403
        assert operator.post("/api/webhooks/audit/pause").status_code == 200
        assert operator.get("/api/webhooks").json()["webhooks"][0]["paused_at"] is not None
        assert operator.post("/api/webhooks/audit/resume").status_code == 200
        assert operator.post("/api/webhooks/redeliver/999").status_code == 404
    with env.program(Role.VIEWER) as viewer:
        assert viewer.post("/api/webhooks/audit/pause").status_code == 403
        assert viewer.get("/api/webhooks").json()["webhooks"][0]["host"] == "https://audit.example"


def test_an_address_that_must_not_be_reached_is_refused_without_being_repeated(env: ConsoleEnv) -> None:
    with env.program(Role.ADMIN) as admin:
        for url in ("http://127.0.0.1/s3cret", "http://169.254.169.254/s3cret", "ftp://a/s3cret", "s3cret"):
            refused = admin.post("/api/webhooks", json={**AUDIT, "url": url})
            assert refused.status_code == 400
            assert "s3cret" not in refused.text
        assert admin.get("/api/webhooks").json()["webhooks"] == []

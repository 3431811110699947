"""Canaries: a recognizable value for every setting that is declared secret, and a search for each."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fencepost import layered_settings
from fencepost.embedded import Database
from fencepost.layered_settings import LayeredSettings
from fencepost.plugin import load

# Nothing listens there; the errors of connecting might show the value.
NOWHERE = "127.0.0.1:9"


@dataclass(frozen=True)
class CanaryServers:
    """What secrets lead to: servers that are there, and a parrot where a stranger's system would be."""

    database: Database
    redis_url: str
    parrot: str


def readers() -> list[type[LayeredSettings]]:
    """Every class of settings."""
    return [load(reader) for reader in layered_settings.readers()]


def secret_settings() -> set[str]:
    """The variables that are declared secret, in whichever class."""
    sources = (source for reader in readers() for source in reader.sources().values())
    return {source.env for source in sources if source.secret}


def canary_of(variable: str) -> str:
    """Its own for each, so that a leak tells whose it is; and no word that a redaction might look for."""
    return "sings" + hashlib.sha256(variable.encode()).hexdigest()[:20]


def _with_password(url: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    # Redis has a user of this name, which needs no password.
    return (
        f"{scheme}://{user or 'default'}:{password}@{place}"
        if at
        else f"{scheme}://default:{password}@{rest}"
    )


def _hidden_everywhere(address: str, canary: str) -> str:
    """Services put the key of a URL in its password, in its path or in its query."""
    return f"http://parrot:{canary}@{address}/{canary}?key={canary}"


PLANTS: Mapping[str, Callable[[CanaryServers, str], str]] = {
    "DATABASE_URL": lambda ground, song: _with_password(ground.database.url, song),
    "MIGRATION_DATABASE_URL": lambda ground, song: _with_password(ground.database.admin_url, song),
    "LISTEN_DATABASE_URL": lambda ground, song: _with_password(
        Database(ground.database.server, ground.database.name).url, song
    ),
    "STANDBY_DATABASE_URL": lambda ground, song: _with_password(ground.database.viewer_url, song),
    "CONSOLE_READ_DATABASE_URL": lambda ground, song: _with_password(ground.database.viewer_url, song),
    "REDIS_URL": lambda ground, song: _with_password(ground.redis_url, song),
    "HTTP_TOKEN": lambda _, song: song,
    "NONCES_CHAINS": lambda ground, song: (
        f"1={_hidden_everywhere(NOWHERE, song)}; 2={_hidden_everywhere(ground.parrot, song)}"
    ),
    "NONCES_KEYSTORE_PASSWORD": lambda _, song: song,
    "NONCES_KMS_ACCESS_KEY_ID": lambda _, song: song,
    "NONCES_KMS_SECRET_ACCESS_KEY": lambda _, song: song,
    "NONCES_KMS_SESSION_TOKEN": lambda _, song: song,
    "NONCES_VAULT_TOKEN": lambda _, song: song,
    "NONCES_REMOTE_SIGNER": lambda ground, song: f"http://parrot:{song}@{ground.parrot}/",
    "OUTBOX_WEBHOOKS": lambda ground, song: (
        # A password in the second would take the place of the token.
        f"gone={_hidden_everywhere(NOWHERE, song)}; shop=http://{ground.parrot}/{song}?key={song}"
    ),
    "OUTBOX_WEBHOOK_TOKEN": lambda _, song: song,
    "JUDGE_S3_ACCESS_KEY": lambda _, song: song,
    "JUDGE_S3_SECRET_KEY": lambda _, song: song,
    "JUDGE_DISCOVERY": lambda ground, song: f"etcd://parrot:{song}@{ground.parrot}",
    "CONSOLE_OIDC_CLIENT_SECRET": lambda _, song: song,
    "JUDGE_OIDC_CLIENT_SECRET": lambda _, song: song,
}
"""How each is planted, so that the system runs with it. A secret that is not here fails the test."""
UNDECLARED = ("BROKER_KEY", "APCA_API_KEY_ID", "APCA_API_SECRET_KEY", "OANDA_API_TOKEN")
"""Secrets of brokers, which only the environment has."""
BROKER_PLACE = "the password in a broker's address"


def planted(ground: CanaryServers, folder: Path) -> dict[str, str]:
    """The environment of a system whose secrets all sing, with whatever makes it use them."""
    parrot = f"http://{ground.parrot}"
    described = {"headers": {"Authorization": "Bearer ${BROKER_KEY}"}, "promise": "nothing"}
    brokers: dict[str, Any] = {
        "paper": {**described, "base_url": f"http://parrot:{canary_of(BROKER_PLACE)}@{NOWHERE}"},
        "echo": {**described, "base_url": parrot},
        "alpaca": {"adapter": "alpaca", "base_url": parrot},
        "oanda": {"adapter": "oanda", "base_url": parrot},
    }
    return {
        **{name: plant(ground, canary_of(name)) for name, plant in PLANTS.items()},
        **{name: canary_of(name) for name in UNDECLARED},
        "ORDERS_BROKERS": json.dumps(brokers),
        "CONSOLE_PUBLIC_URL": "http://127.0.0.1:1",
        "CONSOLE_OIDC_ISSUER": parrot,
        "CONSOLE_OIDC_CLIENT_ID": "fencepost",
        "CONSOLE_OIDC_ELSE_ROLE": "viewer",
        "JUDGE_STORE": "s3://bucket/tests",
        "JUDGE_S3_ENDPOINT": parrot,
        "JUDGE_S3_REGION": "nowhere",
        "JUDGE_LANGUAGES": "python",
        "FENCEPOST_DATA_DIR": str(folder),
    }


def singers() -> list[str]:
    return [*PLANTS, *UNDECLARED, BROKER_PLACE]


def heard(text: str, names: Iterable[str] | None = None) -> list[str]:
    """Whose songs are in a text: plain, as bytes are written, or as a header codes them."""
    return [name for name in names or singers() if any(form in text for form in _forms(canary_of(name)))]


def _forms(song: str) -> Generator[str]:
    yield song
    yield song.encode().hex()
    for shift in range(3):
        # What stands before it decides how it is cut into threes; the ends belong to the neighbours.
        coded = base64.b64encode(b" " * shift + song.encode()).decode()
        yield coded[4 if shift else 0 : len(song) // 3 * 4 - 4]


@contextmanager
def parrot() -> Generator[str]:
    """The address of a server that refuses everything, and repeats whatever it was told as its reason."""

    class Parrot(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            told = [self.headers[name] for name in self.headers if name.lower() in REPEATED]
            said = f"{' '.join(told)} {self.path} {body[:200].decode(errors='replace')}"
            status, reply = _reply(f"http://{self.headers['Host']}", self.path, said)
            coded = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(coded)))
            self.end_headers()
            self.wfile.write(coded)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Tests are quiet."""

    for method in ("GET", "POST", "PUT"):
        setattr(Parrot, f"do_{method}", Parrot.answer)
    with ThreadingHTTPServer(("127.0.0.1", 0), Parrot) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


REPEATED = ("authorization", "apca-api-key-id", "apca-api-secret-key")


def _reply(place: str, path: str, said: str) -> tuple[int, dict[str, Any]]:
    if path.startswith("/.well-known/"):
        doors = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        return 200, {"issuer": place, **{door: f"{place}/{door}" for door in doors}}
    return 400, {"message": said, "error": {"code": -32000, "message": said}, "errorMessage": said}

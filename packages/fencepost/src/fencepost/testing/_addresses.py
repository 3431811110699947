"""The server address of a URL, and the same URL through a local socket."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from psycopg.conninfo import conninfo_to_dict

POSTGRES_PORT = 5432
REDIS_PORT = 6379


@dataclass(frozen=True)
class Target:
    """A server's address: a unix socket, or a host and a port."""

    path: Path | None = None
    host: str = ""
    port: int = 0


def postgres_target(url: str) -> Target:
    parameters = conninfo_to_dict(url)
    host = str(parameters.get("host") or "")
    if not host or "," in host:
        raise ValueError("The URL must name one host, or one directory with the server's socket.")
    port = int(str(parameters.get("port") or POSTGRES_PORT))
    if host.startswith("/"):
        return Target(path=Path(host) / socket_name(port))
    return Target(host=host, port=port)


def postgres_through(url: str, directory: Path) -> str:
    """The same URL through a socket in `directory`. There is no encryption on a unix socket."""
    parameters = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    user = quote(parameters.pop("user", ""), safe="")
    password = parameters.pop("password", None)
    login = user if password is None else f"{user}:{quote(password, safe='')}"
    database = quote(parameters.pop("dbname", ""), safe="")
    kept = {name: value for name, value in parameters.items() if not name.startswith("ssl")}
    query = urlencode({**kept, "host": str(directory), "port": str(POSTGRES_PORT)}, quote_via=quote)
    return f"postgresql://{login}@/{database}?{query}"


def socket_name(port: int = POSTGRES_PORT) -> str:
    """How libpq names a server's socket in its directory."""
    return f".s.PGSQL.{port}"


def redis_target(url: str) -> Target:
    parts = urlsplit(url)
    match parts.scheme:
        case "unix":
            return Target(path=Path(unquote(parts.path)))
        case "redis":
            return Target(host=parts.hostname or "localhost", port=parts.port or REDIS_PORT)
        case _:
            raise ValueError(f"{parts.scheme}:// cannot go through a proxy; unix:// and redis:// can.")


def redis_through(url: str, socket: Path) -> str:
    """The same URL through a local socket; the database number moves into the query."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "redis" and parts.path.strip("/"):
        query["db"] = parts.path.strip("/")
    login, at, _ = parts.netloc.rpartition("@")
    return f"unix://{login}{at}{quote(str(socket))}{'?' if query else ''}{urlencode(query)}"

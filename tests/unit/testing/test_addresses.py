"""URLs by way of a proxy's socket."""

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from fencepost.testing._addresses import (
    Target,
    postgres_target,
    postgres_through,
    redis_target,
    redis_through,
)

SOCKET = Path("/run/proxy/.s.PGSQL.5432")


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("postgresql://me@/shop?host=%2Frun%2Fpg", Target(path=Path("/run/pg/.s.PGSQL.5432"))),
        ("postgresql://me@/shop?host=%2Frun%2Fpg&port=6000", Target(path=Path("/run/pg/.s.PGSQL.6000"))),
        ("postgresql://me:pw@db.internal/shop", Target(host="db.internal", port=5432)),
        ("host=db.internal port=6000", Target(host="db.internal", port=6000)),
    ],
)
def test_a_postgres_url_leads_to_its_server(url: str, target: Target) -> None:
    assert postgres_target(url) == target


@pytest.mark.parametrize("url", ["postgresql:///shop", "postgresql://a,b/shop"])
def test_a_postgres_url_without_one_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="one host"):
        postgres_target(url)


def test_a_postgres_url_keeps_everything_but_the_address_and_the_encryption() -> None:
    url = "postgresql://m%40e:p%2Fw@db.internal:6000/sh%20op?sslmode=require&application_name=a%20b"
    assert conninfo_to_dict(postgres_through(url, SOCKET.parent)) == {
        "user": "m@e",
        "password": "p/w",
        "dbname": "sh op",
        "application_name": "a b",
        "host": "/run/proxy",
        "port": "5432",
    }


@pytest.mark.parametrize(
    ("url", "target", "through"),
    [
        ("unix:///run/r.sock?db=2", Target(path=Path("/run/r.sock")), f"unix://{SOCKET}?db=2"),
        ("redis://:pw@cache:7000/3", Target(host="cache", port=7000), f"unix://:pw@{SOCKET}?db=3"),
        ("redis://cache", Target(host="cache", port=6379), f"unix://{SOCKET}"),
    ],
)
def test_a_redis_url_leads_to_its_server_by_way_of_the_proxy(url: str, target: Target, through: str) -> None:
    assert redis_target(url) == target
    assert redis_through(url, SOCKET) == through


def test_an_encrypted_redis_cannot_be_looked_into() -> None:
    with pytest.raises(ValueError, match="rediss://"):
        redis_target("rediss://cache")

"""The extras of this package, by the modules that they install: an import that fails names its extra."""

from __future__ import annotations

from collections.abc import Mapping

EXTRA_OF: Mapping[str, str] = {
    "confluent_kafka": "kafka",
    "obstore": "bucket",
    "opentelemetry": "traces",
    "prometheus_client": "metrics",
    "pyarrow": "parquet",
    "redis": "redis",
    "rich": "cli",
    "typer": "cli",
}
# psycopg finds neither its own implementation nor the system's client library.
_NO_CLIENT_LIBRARY = ("no pq wrapper available", "couldn't import requested psycopg")


def missing_extra(error: ImportError) -> str | None:
    """What to install; None for an import that fails for another reason."""
    module = (error.name or "").partition(".")[0]
    if module in EXTRA_OF:
        return f'{module} is not installed. Run: pip install "fencepost[{EXTRA_OF[module]}]"'
    if str(error).startswith(_NO_CLIENT_LIBRARY):
        return (
            'psycopg finds no PostgreSQL client library (libpq). Run: pip install "fencepost[binary]", or '
            f"install libpq with the system's packages. It said: {str(error).splitlines()[0]}"
        )
    return None

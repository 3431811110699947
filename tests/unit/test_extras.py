"""Where an extra is not installed, the library works without it, and what needs it names it."""

import os
import subprocess
import sys

import pytest

from fencepost._extras import EXTRA_OF, missing_extra

WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({list(EXTRA_OF)}))"
"""An entry that is None makes an import fail as if the module were not installed."""


def run_without(code: str, before: str = WITHOUT, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{before}\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("cli", "from fencepost.cli._main import main; main()"),
        ("redis", "from fencepost.redis_streams.connection import *; connect('redis://a', reply_seconds=1)"),
        ("traces", "from fencepost.tracing import *; export_traces('x', {ENDPOINTS[0]: 'http://127.0.0.1'})"),
        (
            "metrics",
            "from fencepost.metrics import Metrics; sys.exit(Metrics().page().body.decode().strip())",
        ),
        ("kafka", "from fencepost.flows.sources.kafka import client_library; client_library()"),
        ("bucket", "from fencepost.flows._bucket import Bucket; Bucket('s3://a/b', {}).check()"),
        ("parquet", "from fencepost.flows.sinks.files import arrow_library; arrow_library('pyarrow')"),
    ],
)
def test_what_needs_an_extra_names_it(extra: str, code: str) -> None:
    done = run_without(code)

    assert done.returncode == 1
    assert f"fencepost[{extra}]" in done.stderr.splitlines()[-1]


def test_without_a_client_library_of_postgresql_the_error_names_the_extra_that_has_one() -> None:
    absent = "import ctypes.util; ctypes.util.find_library = lambda name: None"
    used = run_without("import fencepost; fencepost.Fencepost", absent, PSYCOPG_IMPL="python")
    status = "import sys; sys.argv = ['fencepost', 'status']; from fencepost.cli._main import main; main()"
    command = run_without(status, absent, PSYCOPG_IMPL="python")

    for done in (used, command):
        assert done.returncode != 0
        assert 'pip install "fencepost[binary]"' in done.stderr.splitlines()[-1]
    assert "Traceback" not in command.stderr


def test_a_module_that_is_no_extra_is_missed_as_usual() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'shop'", name="shop")) is None
    assert missing_extra(ImportError("cannot import name 'x' from 'y'")) is None


def test_every_module_but_the_command_line_can_be_imported_without_any_extra() -> None:
    done = run_without(
        "import importlib, pkgutil, fencepost\n"
        "for module in pkgutil.walk_packages(fencepost.__path__, 'fencepost.'):\n"
        # Clients of Redis are reached through a function that names the extra. The others name theirs.
        "    if not module.name.startswith(('fencepost.cli', 'fencepost.redis_streams._sentinel_clients',\n"
        "                                   'fencepost.redis_streams._cluster_clients',\n"
        "                                   'fencepost.redis_streams._slots',\n"
        "                                   'fencepost.contrib.')):\n"
        "        importlib.import_module(module.name)"
    )

    assert done.returncode == 0, done.stderr


def test_without_metrics_everything_that_counts_goes_on() -> None:
    done = run_without(
        "from fencepost.metrics import Metrics, KernelMetrics, observe_many\n"
        "from fencepost.cli._status_metrics import StatusCollector\n"
        "from fencepost.jobs._metrics import JobMetrics\n"
        "metrics = Metrics(); kernel = KernelMetrics.on(metrics); JobMetrics.on(metrics)\n"
        "kernel.refusals.labels('stale', noun='job').inc()\n"
        "kernel.call_seconds.labels('f', 'ok').observe(1)\n"
        "observe_many(kernel.call_seconds, 0.5, 3); metrics.watch_pool('p', dict)\n"
        "gauge = metrics.gauge('g', 'A gauge.'); gauge.set(1); gauge.dec()\n"
        "metrics.registry.register(StatusCollector(lambda: None))\n"
        "assert metrics.page().status == 501"
    )

    assert done.returncode == 0, done.stderr

"""The peers of bench-flows: each in an environment of its own, by a script that says how it is set."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from fencepost.bench import flows_arena as stage
from fencepost.bench.jobs_peers import CannotTakePart, Environment, Peer
from fencepost.bench.report import Row

HERE = Path(__file__).parent
SECONDS_MAX = 600
# The truth is of no matter here: a peer of flows keeps its offsets where it likes.
PEERS: dict[str, tuple[Peer, str]] = {
    "bytewax": (Peer("bytewax", "Redis", ("bytewax==0.21.1", "orjson==3.11.4")), "at-least-once"),
}


def measured_peers(count: int, *, quick: bool) -> list[Row]:
    """A row for each; in the quick form only those whose environment is there already."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as folder:
        lines = Path(folder) / "records.jsonl"
        lines.write_bytes(b"".join(stage.record(number) + b"\n" for number in range(count)))
        for peer, guarantee in PEERS.values():
            if quick and not Environment(peer).ready:
                rows.append(
                    {"system": peer.title, "guarantee": guarantee, "note": "make bench-flows without QUICK"}
                )
                continue
            try:
                rows.append({"system": peer.title, "guarantee": guarantee, **_measure(peer, lines, count)})
            except (CannotTakePart, subprocess.SubprocessError) as error:
                rows.append({"system": peer.title, "guarantee": guarantee, "note": str(error)[:120]})
    return rows


def _measure(peer: Peer, lines: Path, count: int) -> Row:
    environment = Environment(peer)
    environment.make()
    script = HERE / f"flows_peer_{peer.name}.py"
    done = subprocess.run(
        [environment.python, script, lines],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    return {
        "records/CPU s": round(count / figures["cpu_seconds"]),
        "records/s": round(count / figures["wall_seconds"]),
        "MB": round(figures["memory_mb"]),
    }

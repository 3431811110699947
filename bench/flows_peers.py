"""The peers of bench-flows: each in an environment of its own, run by a script with its settings."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench import flows_env
from bench.jobs_peers import CannotTakePart, Environment, Peer
from bench.report import Row

HERE = Path(__file__).parent
SECONDS_MAX = 600
ORJSON = "orjson==3.13.0"
KAFKA = "confluent-kafka==2.12.2"
# What a mock broker can hold: a partition keeps 5 MB and then drops the oldest.
MOCKED_MAX = 120_000
QUICK_MAX = 40_000


@dataclass(frozen=True, slots=True)
class FlowPeer:
    """The peer, its guarantee with the settings used here, and the most records that it is given."""

    # `truth` does not matter here: a peer of flows keeps its offsets where it likes.
    peer: Peer
    guarantee: str
    records_max: int | None = None


PEERS = (
    FlowPeer(Peer("bytewax", "Redis", ("bytewax==0.21.1", ORJSON)), "at-least-once"),
    FlowPeer(Peer("pathway", "Redis", ("pathway==0.33.0", ORJSON)), "at-least-once; more is paid for"),
    FlowPeer(
        Peer("quixstreams", "Redis", ("quixstreams==3.28.1", KAFKA, ORJSON)), "at-least-once", MOCKED_MAX
    ),
    FlowPeer(Peer("faust", "Redis", ("faust-streaming==0.15.3", KAFKA, ORJSON)), "at-least-once", MOCKED_MAX),
)


def measured_peers(count: int, *, quick: bool) -> list[Row]:
    """A row for each; in the quick form only those whose environment exists already."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as folder:
        lines = Path(folder) / "records.jsonl"
        lines.write_bytes(b"".join(flows_env.record(number) + b"\n" for number in range(count)))
        for entrant in PEERS:
            known: Row = {"system": entrant.peer.title, "guarantee": entrant.guarantee}
            if quick and not Environment(entrant.peer).ready:
                rows.append({**known, "note": "make bench-flows without QUICK makes its environment"})
                continue
            most = min(count, entrant.records_max or count)
            try:
                rows.append(
                    {**known, **_measure(entrant.peer, lines, min(most, QUICK_MAX) if quick else most)}
                )
            except (CannotTakePart, subprocess.SubprocessError, WrongSum) as error:
                rows.append({**known, "note": str(error)[:120]})
    return rows


class WrongSum(Exception):
    """The sum is not that of the input: the figures would be worthless."""


def _measure(peer: Peer, lines: Path, count: int) -> Row:
    environment = Environment(peer)
    environment.make()
    script = HERE / f"flows_peer_{peer.name}.py"
    done = subprocess.run(
        [environment.python, script, lines, str(count)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    expected = sum(number % flows_env.AMOUNTS for number in range(count))
    if figures["total"] != expected:
        raise WrongSum(f"summed up {figures['total']}, and {expected} was given")
    return {
        "records": count,
        "records/CPU s": round(count / figures["cpu_seconds"]),
        "records/s": round(count / figures["wall_seconds"]),
        "MB": round(figures["memory_mb"]),
    }

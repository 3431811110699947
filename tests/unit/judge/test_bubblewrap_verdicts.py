"""What a run in bubblewrap amounts to, without a run."""

import pytest

from fencepost_judge._protocol import Verdict
from fencepost_judge.sandbox._bubblewrap import Ended, judge_run
from fencepost_judge.sandbox._run_spec import Limits, RunSpec

ORDER = RunSpec(args=["/app/main"], limits=Limits(cpu_ms=1000, memory_kb=65_536, output_kb=64))


@pytest.mark.parametrize(
    ("by", "code", "cpu_ms", "peak_kb", "stdout_bytes", "verdict", "signal"),
    [
        ("", 0, 5, 900, 0, "OK", 0),
        ("", 3, 5, 900, 0, "RE", 0),
        ("", 134, 5, 900, 0, "RE", 6),
        ("", 200, 5, 900, 0, "RE", 0),
        ("", 137, 5, 65_500, 0, "MLE", 9),
        ("memory", None, 5, 70_000, 0, "MLE", 9),
        ("", 0, 5, 70_000, 0, "MLE", 0),
        ("", 0, 1001, 900, 0, "TLE", 0),
        ("", 152, 900, 900, 0, "TLE", 24),
        ("cpu", None, 1010, 900, 0, "TLE", 9),
        ("wall", None, 5, 900, 0, "TLE", 9),
        ("", 153, 5, 900, 0, "OLE", 25),
        ("", 0, 5, 900, 65_536, "OLE", 0),
        ("output", None, 5, 900, 0, "OLE", 9),
    ],
)
def test_a_run_gets_its_verdict(
    by: str, code: int | None, cpu_ms: int, peak_kb: int, stdout_bytes: int, verdict: str, signal: int
) -> None:
    got = judge_run(ORDER, Ended(by, code, cpu_ms, 10, peak_kb), stdout_bytes, 0)

    assert (got.verdict, got.exit_signal) == (verdict, signal)
    assert got.exit_code == (0 if signal else code or 0)


@pytest.mark.parametrize(("by", "error"), [("", "bubblewrap: no run"), ("starved", "starved")])
def test_what_is_not_the_programs_fault_is_the_sandboxs(by: str, error: str) -> None:
    got = judge_run(ORDER, Ended(by, None, 0, 10, 1), 0, 0)

    assert (got.verdict, got.sandbox_error) == (Verdict.SE, error)

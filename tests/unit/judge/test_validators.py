"""What a validator's exit code and the files that it left mean."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from fencepost_judge._compiling import Program
from fencepost_judge._problem import Protocol
from fencepost_judge._protocol import Verdict, sandbox_failure
from fencepost_judge._validating import Validator

RIGHT = replace(sandbox_failure(""), verdict=Verdict.RE, exit_code=42)
ICPC = Validator(cast("Program", None), Protocol.ICPC)
TESTLIB = Validator(cast("Program", None), Protocol.TESTLIB)


@pytest.mark.parametrize(
    ("files", "verdict", "share", "points"),
    [
        ({}, "AC", 1, None),
        ({"score_multiplier.txt": "0.25"}, "AC", 0.25, None),
        ({"score.txt": "37.5\n"}, "AC", 1, 37.5),
        ({"score_multiplier.txt": "1.5"}, "JE", 1, None),
        ({"score.txt": "-1"}, "JE", 1, None),
        ({"score.txt": "inf"}, "JE", 1, None),
        ({"score.txt": "many"}, "JE", 1, None),
    ],
)
def test_a_validator_gives_a_part_or_points(
    tmp_path: Path, files: dict[str, str], verdict: str, share: float, points: float | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    got = ICPC.opinion(RIGHT, tmp_path, b"")

    assert (got.verdict, got.share, got.points) == (verdict, share, points)


@pytest.mark.parametrize(
    ("code", "said", "verdict", "share"),
    [
        (0, b"ok", "AC", 1),
        (1, b"wrong", "WA", 1),
        (2, b"pe", "PE", 1),
        (3, b"FAIL", "JE", 1),
        (4, b"dirt", "WA", 1),
        (7, b"points 0.25 near", "PA", 0.25),
        (7, b"points 1", "AC", 1),
        (7, b"points -3", "JE", 1),
        (7, b"points 37 of 100", "PA", 1),
        (7, b"points", "JE", 1),
        (8, b"eof", "PE", 1),
        (9, b"", "JE", 1),
    ],
)
def test_a_testlib_checker_speaks_by_its_exit_code(
    tmp_path: Path, code: int, said: bytes, verdict: str, share: float
) -> None:
    got = TESTLIB.opinion(replace(RIGHT, exit_code=code), tmp_path, said)

    assert (got.verdict, got.share) == (verdict, share)
    assert got.points == (37 if b"37" in said else None)

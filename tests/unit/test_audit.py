"""The audit of dependencies: a known vulnerability fails, one that is accepted for a time does not."""

import importlib.util
import json
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
REPORT: dict[str, Any] = {
    "dependencies": [
        {"name": "sound", "version": "1.0", "vulns": []},
        {"name": "unknown", "skip_reason": "not found"},
        {
            "name": "weak",
            "version": "2.0",
            "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.1"]}],
        },
    ]
}


@pytest.fixture
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci/audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_known_vulnerability_fails(
    audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps(REPORT))
    assert audit.main([str(report)]) == 1
    said = capsys.readouterr().out
    assert "2 of 3 dependencies audited, 1 vulnerable." in said
    assert "weak 2.0: PYSEC-1, fixed in 2.1" in said


@pytest.mark.parametrize("name", ["PYSEC-1", "CVE-1"])
def test_an_exception_counts_until_its_day(audit: ModuleType, name: str) -> None:
    text = f"# ID, day, reason\n{name} 2027-01-31 not reachable from outside\n"
    excepted = audit.exceptions(text, date(2027, 1, 31))
    assert audit.judge(REPORT, excepted)[0] == []
    assert "accepted: not reachable from outside" in audit.judge(REPORT, excepted)[1][0]
    assert audit.exceptions(text, date(2027, 2, 1)) == {}


def test_an_exception_without_a_day_is_refused(audit: ModuleType) -> None:
    with pytest.raises(SystemExit, match="ID YYYY-MM-DD REASON"):
        audit.exceptions("PYSEC-1 because", date(2027, 1, 31))


def test_the_exceptions_that_we_have_can_be_read(audit: ModuleType) -> None:
    audit.exceptions((ROOT / ".ci/audit-exceptions.txt").read_text(), date(2026, 1, 1))

"""No secret lies in the repository: none of the shapes that keys and tokens have, and no password in a URL.

Each rule is shown a secret first. What looks like one and is none stands in `KNOWN`.
"""

import re

import pytest

from tests.unit.test_tidy import ROOT, files, relative

CHANCE = "a1B2c3D4e5F6g7H8i9J0" * 4
# Built from parts, so that this file does not hold what it looks for.
SHAPES: dict[str, tuple[str, str]] = {
    "a private key": (r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----", "-----BEGIN RSA " + "PRIVATE KEY-----"),
    "a key of AWS": (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", "AKIA" + "ABCDEFGHIJKLMNOP"),
    "a token of GitHub": (r"\bgh[pousr]_[A-Za-z0-9]{36}\b|github_pat_\w{50,}", "ghp_" + CHANCE[:36]),
    "a token of GitLab": (r"\bglpat-[\w-]{20}\b", "glpat-" + CHANCE[:20]),
    "a token of Slack": (r"\bxox[abprs]-[\w-]{10,}", "xoxb-" + CHANCE[:12]),
    "a key of Google": (r"\bAIza[\w-]{35}\b", "AIza" + CHANCE[:35]),
    "a key of Stripe": (r"\b[rs]k_live_\w{16,}", "sk_live_" + CHANCE[:20]),
    "a token of a package index": (r"\bpypi-[\w-]{50,}", "pypi-" + CHANCE[:60]),
    "a JSON web token": (
        r"\beyJ[\w-]{15,}\.eyJ[\w-]{15,}\.[\w-]{10,}",
        f"eyJ{CHANCE[:20]}.eyJ{CHANCE[:20]}.{CHANCE[:12]}",
    ),
    "a private key of Ethereum": (r"\b0x[0-9a-fA-F]{64}\b", "0x" + "0123456789abcdef" * 4),
    "a password in a URL": (
        r"\b\w+://[\w.%-]+:[^\s@/:\"'{}<>$()\[\]|\\]{6,}@[\w\[]",
        "postgresql://app:" + "Tr0ub4dor&3@db",
    ),
}
# Passwords of tests and of documentation: they open nothing.
KNOWN = re.compile(r":(?:hunter2|password|secret|p%40ss|s3cret|\*\*\*)", re.IGNORECASE)
KEY_STORES = {".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx"}


def found_in(text: str) -> list[str]:
    return [
        f"{name}: {match[0][:60]}"
        for name, (shape, _) in SHAPES.items()
        for match in re.finditer(shape, text)
        # One byte again and again is no secret.
        if not KNOWN.search(match[0]) and len(set(match[0])) > 8
    ]


@pytest.mark.parametrize("name", SHAPES)
def test_a_secret_would_be_seen(name: str) -> None:
    assert any(found.startswith(name) for found in found_in(f'x = "{SHAPES[name][1]}"'))


def test_no_file_holds_a_secret() -> None:
    found = {relative(path): found_in(path.read_text(errors="replace")) for path in files()}

    assert {path: secrets for path, secrets in found.items() if secrets} == {}


def test_no_file_is_a_key_store() -> None:
    folders = [ROOT / name for name in ("packages", "bench", "tests", "docs", "examples", "specs", "deploy")]
    inside = [path for folder in folders for path in folder.rglob("*")]

    assert [str(path) for path in inside if path.suffix in KEY_STORES] == []

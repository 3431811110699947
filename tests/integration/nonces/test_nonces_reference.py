"""The reference of the nonces knows every function, setting and state, and no other."""

import re
from pathlib import Path

from fencepost.kernel.migrate import component
from fencepost_nonces._settings import NoncesSettings
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.test_reference import FUNCTIONS, signature

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "nonces.md").read_text()


def test_every_function_is_in_the_reference_with_its_arguments(admin: Caller) -> None:
    ours = {
        name
        for _, text in component("nonces").functions
        for name in re.findall(r"create or replace function fencepost\.(nonce_\w+)", text)
    }
    functions = {signature(one) for one in admin.rows(FUNCTIONS) if one["name"] in ours}

    assert set(re.findall(r"`(nonce_\w+\([^`]*\))`", PAGE)) == functions


def test_every_setting_is_in_the_reference_with_its_default() -> None:
    for name, source in NoncesSettings.sources().items():
        row = next(line for line in PAGE.splitlines() if f"| `{source.env}` | `{source.file}` |" in line)
        default = NoncesSettings.model_fields[name].default
        shown = "none" if default in (None, "") else str(default).removesuffix(".0")
        assert shown in row.split("|")[3], row

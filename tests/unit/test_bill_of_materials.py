"""The bill of materials names everything that the lock file names, with every hash."""

import importlib.util
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def bill(lock: str) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("bill", ROOT / "deploy" / "bill_of_materials.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: dict[str, Any] = module.bill_of(lock, "1.2")
    return made


def test_a_requirement_has_its_version_and_all_its_hashes() -> None:
    lock = f"""Alpha-b==1.0 ; python_version < '4' \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
    # via gamma
gamma==2.0rc1 \\
    --hash=sha256:{"c" * 64}
"""
    first, second = bill(lock)["components"]

    assert (first["purl"], [h["content"][0] for h in first["hashes"]]) == ("pkg:pypi/alpha-b@1.0", ["a", "b"])
    assert (second["purl"], len(second["hashes"])) == ("pkg:pypi/gamma@2.0rc1", 1)


def test_ours_is_complete_and_every_part_has_a_hash() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    components = bill(lock)["components"]

    assert len(components) == len(re.findall(r"^\S+==", lock, re.MULTILINE)) > 20
    assert all(component["hashes"] for component in components)

"""Which file a program of several files begins with."""

import pytest

from fencepost_judge._compiling import entry_of
from fencepost_judge._language import read_specs

SPECS = {spec.name: spec for spec in read_specs()}


@pytest.mark.parametrize(
    ("sources", "entry"),
    [
        ({"main.py": "import a", "a.py": ""}, "main.py"),
        ({"Solver.py": "", "__main__.py": "from Solver import x"}, "__main__.py"),
        ({"a_tools.py": "x = 1", "validate.py": "import a_tools\n"}, "validate.py"),
        ({"a_tools.py": "x = 1", "validate.py": "from a_tools import x\n"}, "validate.py"),
        ({"a_tools.py": "x = 1", "b.py": "import os, a_tools as t\n"}, "b.py"),
        ({"a.py": "def f(): pass\n", "b.py": "if __name__ == '__main__':\n    pass\n"}, "b.py"),
        ({"a.py": "import b\n", "b.py": "import a\n"}, "a.py"),
        ({"only.py": "print(1)"}, "only.py"),
    ],
)
def test_a_python_program_begins_in_the_module_that_no_other_imports(
    sources: dict[str, str], entry: str
) -> None:
    assert entry_of(SPECS["python"], sources) == entry
    assert entry_of(SPECS["pypy"], {name: text.encode() for name, text in sources.items()}) == entry


def test_an_older_extension_is_pythons_too() -> None:
    assert entry_of(SPECS["python"], {"only.py3": "print(1)"}) == "only.py3"


def test_other_languages_begin_with_their_usual_name_or_the_first() -> None:
    assert entry_of(SPECS["c"], {"z.c": "", "main.c": ""}) == "main.c"
    assert entry_of(SPECS["c"], {"z.c": "", "a.c": "", "a.h": ""}) == "a.c"

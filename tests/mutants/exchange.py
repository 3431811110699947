"""Exchange the code of a function in the running process: modules that have imported it call the new one."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import cast

from tests.mutants.python_operators import PythonMutant

WRAPPED_AS = ("fget", "func", "__func__", "__wrapped__")


class Stillborn(Exception):
    """It cannot be planted."""


def plant(mutant: PythonMutant) -> None:
    """For good: in a child that ends after its tests."""
    try:
        compiled = compile(mutant.module_text, str(mutant.path), "exec", dont_inherit=True)
    except SyntaxError as broken:
        raise Stillborn(mutant.name) from broken
    code = next(code for code in _codes(compiled) if _key(code) == _key_of(mutant))
    function = _function(_module(mutant.path), mutant)
    try:
        function.__code__ = code
    except ValueError as broken:  # What it takes from around it has changed.
        raise Stillborn(mutant.name) from broken


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _key_of(mutant: PythonMutant) -> tuple[str, int]:
    return mutant.function, mutant.first_line


def _module(path: Path) -> ModuleType:
    found = [
        module for module in list(sys.modules.values()) if getattr(module, "__file__", None) == str(path)
    ]
    assert len(found) == 1, f"{path} is loaded {len(found)} times"
    return found[0]


def _function(module: ModuleType, mutant: PythonMutant) -> FunctionType:
    """The function itself, whatever it is wrapped in."""
    found: object = module
    for part in mutant.function.split("."):
        found = cast("object", vars(found)[part])
    while not isinstance(found, FunctionType) or _key(found.__code__) != _key_of(mutant):
        wrapped: list[object] = [getattr(found, name, None) for name in WRAPPED_AS]
        found = next((one for one in wrapped if one is not None), None)
        if found is None:
            raise Stillborn(mutant.name)
    return found

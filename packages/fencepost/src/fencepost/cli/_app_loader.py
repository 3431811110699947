"""Finds the Fencepost instance of an application: `shop.tasks:fp`, or the only one in `shop.tasks`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import remark
from fencepost.client import Fencepost


def find_application(target: str) -> Fencepost:
    """The instance that `MODULE[:ATTRIBUTE]` names, with its handlers declared. Errors say what to write."""
    module_name, _, attribute = target.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        raise UserError(
            f"{module_name} is a file; write its module: {_module_for(module_name)}.", ExitCode.USAGE
        )
    fp = _attribute_of(_import(module_name), attribute) if attribute else _only_one(_import(module_name))
    if not len(fp.handlers):
        raise UserError(
            f"{target} declares no job. Import the modules that do (`@fp.job(...)`) from {module_name}.",
            ExitCode.USAGE,
        )
    return fp


def _import(name: str) -> ModuleType:
    # As with `python -m`, modules in the current directory can be imported.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"There is no module {error.name} in {here}, nor on Python's path.", ExitCode.USAGE
            ) from None
        raise _not_importable(name, error) from None
    except Exception as error:
        raise _not_importable(name, error) from None


def _not_importable(name: str, error: Exception) -> UserError:
    """Print the traceback, which shows where the import failed, and make the error."""
    remark(traceback.format_exc().rstrip())
    return UserError(f"{name} cannot be imported: {type(error).__name__}: {error}")


def _attribute_of(module: ModuleType, path: str) -> Fencepost:
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            raise UserError(f"{module.__name__} has no {path}.{_known_in(module)}", ExitCode.USAGE)
        found = getattr(found, name)
    if not isinstance(found, Fencepost):
        raise UserError(
            f"{module.__name__}:{path} is no Fencepost, but {type(found).__name__}.{_known_in(module)}",
            ExitCode.USAGE,
        )
    return found


def _only_one(module: ModuleType) -> Fencepost:
    known = {name: value for name, value in vars(module).items() if isinstance(value, Fencepost)}
    if len({id(value) for value in known.values()}) == 1:
        return next(iter(known.values()))
    if not known:
        raise UserError(
            f"{module.__name__} has no Fencepost. Make one: fp = Fencepost.from_env().", ExitCode.USAGE
        )
    raise UserError(f"{module.__name__} has more than one Fencepost.{_known_in(module)}", ExitCode.USAGE)


def _known_in(module: ModuleType) -> str:
    known = [name for name, value in vars(module).items() if isinstance(value, Fencepost)]
    return f" Write one of {', '.join(f'{module.__name__}:{name}' for name in known)}." if known else ""


def _module_for(path: str) -> str:
    return Path(path).with_suffix("").as_posix().strip("/").replace("/", ".")

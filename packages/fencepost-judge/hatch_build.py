"""Compiles the judge's sandbox when the package is built; without a C compiler the judge reports that
later."""

from __future__ import annotations

import platform
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAM = "src/fencepost_judge/sandbox/_box_binary.py"


class CompileTheBox(BuildHookInterface[Any]):
    """A wheel that contains the binary is for one kind of machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or not sys.platform.startswith("linux"):
            return
        program = self._program()
        try:
            compiled: Path = program.compile_into(program.PACKAGED)
        except (program.CannotCompile, OSError) as error:
            self.app.display_warning(f"The judge's sandbox was not compiled: {error}")
            return
        for old in program.PACKAGED.glob("*"):
            if old != compiled:
                old.unlink()
        build_data["artifacts"].append(str(compiled.relative_to(self.root)))
        # It is linked statically and without a C library, so that it runs on any Linux of this processor,
        # whatever its C library and the version of Python; the index accepts no plain `linux` tag.
        machine = platform.machine()
        build_data["tag"] = f"py3-none-manylinux2014_{machine}.musllinux_1_1_{machine}"
        build_data["pure_python"] = False

    def _program(self) -> Any:
        """Loaded by its path: the package itself imports what is not installed yet."""
        return SimpleNamespace(**runpy.run_path(str(Path(self.root) / PROGRAM)))

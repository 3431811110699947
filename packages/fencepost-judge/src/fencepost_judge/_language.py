"""What a language is, and which languages this machine can offer."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from shutil import which
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fencepost.errors import InvalidInput
from fencepost.strict_yaml import load_yaml
from fencepost_judge._settings import JudgeSettings
from fencepost_judge.sandbox._run_spec import Limits, RunSpec

ASK_SECONDS = 20
LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache")
"""What a dynamically linked program needs; on a merged system some of these are links to the others."""

PREPARED, NOT_PREPARED = "/data", "/tmp/prepared"  # noqa: S108
"""Where a compilation finds what was prepared. Without it, a folder of its own that is gone afterwards."""
PREPARED_KB, PREPARED_FILES = 524_288, 8192

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+_-]{0,31}$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$")]


class ProgramSpec(BaseModel):
    """A program by its names on PATH. `ask` makes it print its real path, `ask_root` its folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: list[str]
    ask: list[str] = []
    ask_root: list[str] = []


class PreparationSpec(BaseModel):
    """What a compiler does once for all compilations on a judge: it writes to /out, which every later
    compilation can read at {prepared}. With `for_text`, only for sources that contain this text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: Annotated[list[str], Field(min_length=1)]
    for_text: str = ""
    cpu_ms: Annotated[int, Field(gt=0)] = 120_000
    memory_kb: Annotated[int, Field(gt=0)] = 2_097_152


class LanguageTests(BaseModel):
    """Programs that show that a definition works: one prints the line that it reads, the others loop for
    ever, take all memory, and fail."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    echo: str
    loop: str
    memory: str
    crash: str


class LanguageSpec(BaseModel):
    """One file of languages/, or of JUDGE_LANGUAGES_DIR."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    title: str
    source: FileName
    extensions: list[str]
    programs: dict[str, ProgramSpec]
    version: list[str]
    compile: list[str] = []
    run: list[str]
    runs_from: Literal["output", "source"] = "output"
    main_class: Literal["no", "folder", "jar"] = "no"
    needs: Literal["libraries", "toolchain"] = "libraries"
    roots: list[str] = []
    env: dict[str, str] = {}
    proc: bool = False
    processes: int = 32
    time_factor: Annotated[float, Field(ge=1, le=20)] = 1.0
    """Programs get the problem's time limit times this."""
    memory_extra_kb: Annotated[int, Field(ge=0, le=1 << 24)] = 0
    memory_exit_codes: list[int] = []
    compile_memory_kb: int = 524_288
    compile_cpu_ms: int = 15_000
    prepare: PreparationSpec | None = None
    tests: LanguageTests | None = None


@dataclass(frozen=True)
class Language:
    """A language whose programs were found."""

    spec: LanguageSpec
    programs: Mapping[str, str]
    toolchain: Sequence[str]
    version: str

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def run_roots(self) -> Sequence[str]:
        return self.toolchain if self.spec.needs == "toolchain" else libraries()

    def prepare_order(self, spec: PreparationSpec, out: Path) -> RunSpec:
        """Do what all compilations need once, into `out`."""
        limits = _compiler_limits(spec.cpu_ms, spec.memory_kb).with_(output_kb=PREPARED_KB)
        return RunSpec(
            args=[_fill(word, {**self.programs, "prepared": "/out"}) for word in spec.command],
            limits=limits,
            roots=self.toolchain,
            env=self._compiler_env("/out"),
            proc=True,
            out=out,
            out_kb=PREPARED_KB,
            out_files=PREPARED_FILES,
        )

    def compile_order(
        self, folder: str, sources: Sequence[str], entry: str, out: Path, prepared: str | None = None
    ) -> RunSpec | None:
        """Compile the sources in `folder` of the workspace; None for a language without a compiler.

        `prepared` is the folder of the workspace with what was prepared.
        """
        if not self.spec.compile:
            return None
        limits = _compiler_limits(self.spec.compile_cpu_ms, self.spec.compile_memory_kb)
        return RunSpec(
            args=self._filled(self.spec.compile, sources, entry, limits),
            limits=limits,
            roots=self.toolchain,
            binds={folder: "/app", prepared: PREPARED} if prepared else {folder: "/app"},
            env=self._compiler_env(PREPARED if prepared else NOT_PREPARED),
            proc=True,
            out=out,
            out_kb=131_072,
        )

    def run_order(self, folder: str, entry: str, limits: Limits, args: Iterable[str] = ()) -> RunSpec:
        """Run what was compiled into `folder` of the workspace, or the source in it."""
        factor = self.spec.time_factor
        room = limits.with_(
            cpu_ms=int(limits.cpu_ms * factor),
            wall_ms=int(limits.wall_ms * factor),
            memory_kb=limits.memory_kb + self.spec.memory_extra_kb,
            processes=self.spec.processes,
        )
        return RunSpec(
            args=[*self._filled(self.spec.run, (), entry, limits), *args],
            limits=room,
            roots=self.run_roots,
            binds={folder: "/app"},
            env={"LC_ALL": "C.UTF-8"} if self.spec.needs == "toolchain" else {},
            proc=self.spec.proc,
        )

    def _compiler_env(self, prepared: str) -> dict[str, str]:
        own = {name: _fill(value, {"prepared": prepared}) for name, value in self.spec.env.items()}
        return {"PATH": self._path, "TMPDIR": "/tmp", "LC_ALL": "C.UTF-8", **own}  # noqa: S108

    @property
    def _path(self) -> str:
        own = {str(Path(program).parent) for program in self.programs.values()}
        return ":".join([*sorted(own), "/usr/local/bin", "/usr/bin", "/bin"])

    def _filled(self, words: Iterable[str], sources: Sequence[str], entry: str, limits: Limits) -> list[str]:
        values = {
            **self.programs,
            "prepared": PREPARED,
            "entry": entry,
            "stem": Path(entry).stem,
            "memory_mb": str(max(16, limits.memory_kb // 1024)),
            "room_mb": str(max(16, (limits.memory_kb + self.spec.memory_extra_kb) // 1024)),
            "stack_mb": str(max(1, min(limits.memory_kb // 2048, 256))),
        }
        filled: list[str] = []
        for word in words:
            if word.startswith("{sources:"):
                kinds = tuple(word[9:-1].split(","))
                filled += [f"/app/{source}" for source in sources if source.endswith(kinds)]
            else:
                filled.append(_fill(word, values))
        return filled


class ScriptLanguage(Language):
    """Programs of a package with scripts `build` and `run`: they can use every compiler that was found."""

    def run_order(self, folder: str, entry: str, limits: Limits, args: Iterable[str] = ()) -> RunSpec:
        order = super().run_order(folder, entry, limits, args)
        return replace(order, env={**order.env, "PATH": self._path})


SCRIPT_SPEC = LanguageSpec(
    name="script",
    title="build and run",
    source="run",
    extensions=["run", "build"],
    programs={},
    version=[],
    # An archive does not record which files are executable; the format defines it.
    compile=[
        "/bin/sh",
        "-ec",
        "cp -R /app/. /out/; cd /out; if [ -f build ]; then chmod 755 build; ./build; fi; chmod 755 run",
    ],
    run=["/app/run"],
    needs="toolchain",
    proc=True,
    processes=64,
    compile_memory_kb=2_097_152,
    compile_cpu_ms=60_000,
)


def script_language(languages: Mapping[str, Language]) -> Language:
    """With those programs that the format promises to scripts and that were found: cc, c++ and python3."""
    programs = {
        f"{one.name}-{name}": path
        for one in languages.values()
        if one.name in ("c", "cpp", "python")
        for name, path in one.programs.items()
    }
    return ScriptLanguage(SCRIPT_SPEC, programs, site_roots(languages.values()), "")


def _compiler_limits(cpu_ms: int, memory_kb: int) -> Limits:
    return Limits(
        cpu_ms=cpu_ms,
        wall_ms=cpu_ms * 2,
        memory_kb=memory_kb,
        output_kb=65_536,
        processes=64,
        open_files=512,
        disk_kb=262_144,
        inodes=16_384,
    )


def _fill(word: str, values: Mapping[str, str]) -> str:
    """Replaces only known names: a brace in a program's text is left as it is."""
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word


def libraries() -> Sequence[str]:
    return [path for path in LIBRARIES if Path(path).exists() and not Path(path).is_symlink()]


@cache
def read_specs() -> tuple[LanguageSpec, ...]:
    """The known languages: those of the product, and those of JUDGE_LANGUAGES_DIR, which replace ones of the
    same name.

    Read once for each process: every submission needs them, and reading them takes longer than accepting a
    submission.
    """
    found = {one.name: one for one in read_folder(files("fencepost_judge.languages"))}
    own = JudgeSettings.load().languages_dir
    if own is not None:
        found |= {one.name: one for one in read_folder(own)}
    return tuple(found[name] for name in sorted(found))


def read_folder(folder: Any) -> list[LanguageSpec]:
    """The definitions in a folder. Raises InvalidInput, with the name of the file."""
    try:
        texts = {
            str(file.name): file.read_text(encoding="utf-8") for file in folder.iterdir() if _is_spec(file)
        }
    except OSError as error:
        raise InvalidInput(f"JUDGE_LANGUAGES_DIR cannot be read: {error}", field="languages_dir") from None
    return [read_spec(name, text) for name, text in sorted(texts.items())]


def read_spec(name: str, text: str) -> LanguageSpec:
    try:
        return LanguageSpec.model_validate(load_yaml(text))
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except ValueError as error:
        why = str(error)
    raise InvalidInput(f"{name} is no language: {why}", field="languages_dir")


def find_languages(specs: Iterable[LanguageSpec] | None = None) -> dict[str, Language]:
    """The languages whose programs are installed. Runs each program once, to get its version."""
    found = (find_language(spec) for spec in (specs if specs is not None else read_specs()))
    return {language.name: language for language in found if language is not None}


def find_language(spec: LanguageSpec) -> Language | None:
    programs: dict[str, str] = {}
    for name, program in spec.programs.items():
        path = _find_program(program)
        if path is None:
            return None
        programs[name] = path
    version = _said([_fill(word, programs) for word in spec.version])
    if version is None:
        return None
    roots = [*libraries(), *map(_root_of, programs.values()), *_existing(spec.roots)]
    return Language(spec, programs, _outermost(roots), version)


def by_extension(languages: Mapping[str, Language], name: str) -> Language:
    """The language of a file, by its extension."""
    suffix = Path(name).suffix
    for language in languages.values():
        if suffix in language.spec.extensions:
            return language
    raise InvalidInput(f"{name}: no available language has the extension {suffix!r}.", field=name)


def site_roots(languages: Iterable[Language]) -> list[str]:
    """Every path that any run may need to read."""
    return list(dict.fromkeys([*libraries(), *(root for one in languages for root in one.toolchain)]))


def _is_spec(file: Any) -> bool:
    return str(file.name).endswith(".yaml")


def _find_program(program: ProgramSpec) -> str | None:
    path = next((found for name in program.names if (found := which(name))), None)
    if path is None:
        return None
    if program.ask:
        return _said([path, *program.ask])
    if program.ask_root:
        root = _said([path, *program.ask_root])
        return root and f"{root}/bin/{Path(path).name}"
    return str(Path(path).resolve())


def _root_of(program: str) -> str:
    """The folder with a program's own files: /usr, or the prefix of a toolchain installed elsewhere."""
    return "/usr" if program.startswith("/usr/") else str(Path(program).parent.parent)


def _outermost(roots: Iterable[str]) -> list[str]:
    """Without those that another one contains."""
    known = list(dict.fromkeys(roots))
    return [root for root in known if not any(root.startswith(f"{other}/") for other in known)]


def _existing(patterns: Iterable[str]) -> list[str]:
    return [str(path) for pattern in patterns for path in sorted(Path("/").glob(pattern.lstrip("/")))]


def _said(command: Sequence[str]) -> str | None:
    """The first line that a program prints and that is not a warning, or None when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout or done.stderr).splitlines()
    said = next((line.strip() for line in lines if "warning" not in line.lower()), None)
    return said if done.returncode == 0 else None

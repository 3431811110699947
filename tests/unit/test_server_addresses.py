from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.errors import ServerUnavailable
from fencepost.server_addresses import NOTE, ServerAddresses, noted, of_settings, of_this_directory, read_note
from fencepost.settings import Settings

HERE = ServerAddresses(
    origin="fencepost up in .fencepost",
    remedy="Start it again.",
    migration_url="postgresql://postgres@/fencepost",
    service_url="postgresql://service@/fencepost",
    viewer_url="postgresql://viewer@/fencepost",
    redis_url="unix:///run/valkey.sock",
)


def test_settings_speak_before_the_note_of_a_running_system(tmp_path: Path) -> None:
    with noted(tmp_path, HERE):
        named = Settings(database_url="postgresql://app@db/shop", data_directory=tmp_path)
        assert of_this_directory(named).service_url == "postgresql://app@db/shop"
        assert of_this_directory(Settings(data_directory=tmp_path)) == HERE


def test_migrations_go_to_their_own_url() -> None:
    settings = Settings(
        database_url="postgresql://app@db/shop", migration_database_url="postgresql://owner@db/shop"
    )
    place = of_settings(settings)
    assert place is not None
    assert (place.migration_url, place.viewer_url) == (
        "postgresql://owner@db/shop",
        "postgresql://app@db/shop",
    )


def test_the_note_is_its_owners_alone_and_goes_away(tmp_path: Path) -> None:
    with noted(tmp_path / "data", HERE):
        assert (tmp_path / "data" / NOTE).stat().st_mode & 0o777 == 0o600
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", '{"origin": "x"}', "\x00"])
def test_a_note_that_cannot_be_read_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / NOTE).write_text(text)
    assert read_note(tmp_path) is None
    with pytest.raises(ServerUnavailable, match="DATABASE_URL is not set"):
        of_this_directory(Settings(data_directory=tmp_path))

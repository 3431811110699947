"""The address of a service that Sentinels watch."""

import pytest

from fencepost._sentinel_url import SentinelUrl, speaks_of_sentinels
from fencepost.errors import SettingsError
from fencepost.settings import Settings


def test_the_shortest_form() -> None:
    url = SentinelUrl.read("redis+sentinel://cache/shop")

    assert url == SentinelUrl((("cache", 26379),), "shop", 0, tls=False, login={}, sentinel_login={})


def test_everything_that_can_be_said() -> None:
    url = SentinelUrl.read(
        "rediss+sentinel://app:p%40ss@one:1,[::1]:2,three/shop/4?sentinel_username=eye&sentinel_password=s%26t"
    )

    assert url.sentinels == (("one", 1), ("::1", 2), ("three", 26379))
    assert (url.service, url.database, url.tls) == ("shop", 4, True)
    assert url.login == {"username": "app", "password": "p@ss"}
    assert url.sentinel_login == {"username": "eye", "password": "s&t"}
    assert "p@ss" not in repr(url)
    assert "s&t" not in repr(url)


@pytest.mark.parametrize(
    "wrong",
    [
        "redis+sentinel://cache",
        "redis+sentinel:///shop",
        "redis+sentinel://cache,/shop",
        "redis+sentinel://cache:s3cret/shop",
        "redis+sentinel://cache:99999/shop",
        "redis+sentinel://cache/shop/zero",
        "redis+sentinel://cache/shop?db=1",
    ],
)
def test_what_is_wrong_is_refused_without_being_quoted(wrong: str) -> None:
    assert speaks_of_sentinels(wrong)
    with pytest.raises(SettingsError, match=r"redis\+sentinel://host:26379,host:26379/service/0") as caught:
        Settings.load({"REDIS_URL": wrong})
    assert "s3cret" not in str(caught.value)


def test_a_setting_takes_it_and_hides_its_password() -> None:
    settings = Settings.load({"REDIS_URL": "redis+sentinel://:s3cret@one:26379,two:26379/shop"})

    assert settings.redis_url == "redis+sentinel://:s3cret@one:26379,two:26379/shop"
    assert "s3cret" not in repr(settings)


def test_a_plain_address_is_none() -> None:
    assert not speaks_of_sentinels("redis://cache")
    with pytest.raises(ValueError, match="needs hosts and the name of a service"):
        SentinelUrl.read("redis://cache/0")

"""`fencepost docs` serves the files of one folder on loopback, and lists none."""

import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fencepost.cli import _docs
from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode


def test_a_folder_without_a_site_is_refused_with_the_way_to_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["docs", "--dir", str(tmp_path)]) == ExitCode.PROBLEM
    assert "make docs" in capsys.readouterr().err


def test_pages_are_served_and_folders_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("hello")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/page.html").write_text("page")
    with _docs.listen(tmp_path, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}"
            assert server.server_address[0] == "127.0.0.1"
            assert urlopen(f"{address}/").read() == b"hello"  # noqa: S310
            assert urlopen(f"{address}/folder/page.html").read() == b"page"  # noqa: S310
            for path in ("/folder/", "/../secret", "/%2e%2e/secret"):
                with pytest.raises(HTTPError) as refused:
                    urlopen(f"{address}{path}")  # noqa: S310
                refused.value.close()
                assert refused.value.code == 404
        finally:
            server.shutdown()
            thread.join()


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").write_text("hello")
    with _docs.listen(tmp_path, 0) as server:
        port = str(server.server_address[1])
        assert run(["docs", "--dir", str(tmp_path), "--port", port]) == ExitCode.PROBLEM
    assert f"Port {port}" in capsys.readouterr().err

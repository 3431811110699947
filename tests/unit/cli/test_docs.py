"""`fencepost docs` serves the files of one folder on loopback, and lists none."""

import shutil
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fencepost.cli import _docs
from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode, UserError


def test_a_folder_without_a_site_is_refused_with_the_way_to_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["docs", "--dir", str(tmp_path)]) == ExitCode.PROBLEM
    assert f"{tmp_path} has no built documentation" in capsys.readouterr().err


def test_an_installation_without_documentation_says_where_there_is_one(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="wheels of a release contain"),
        _docs.site(None, tmp_path / "none", tmp_path / "none.zip"),
    ):
        pass


def test_the_installed_documentation_is_shown_where_no_site_was_built(tmp_path: Path) -> None:
    built, packaged = tmp_path / "built", tmp_path / "documentation.zip"
    (built / "docs").mkdir(parents=True)
    (built / "index.html").write_text("built")
    (built / "docs/README.html").write_text("page")
    shutil.make_archive(str(packaged.with_suffix("")), "zip", built)

    with _docs.site(None, tmp_path / "none", packaged) as folder:
        assert (folder / "docs/README.html").read_text() == "page"
    assert not folder.exists()
    with _docs.site(None, built, packaged) as folder:
        assert folder == built


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

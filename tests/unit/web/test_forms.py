"""Where a form may lead."""

from fencepost_server.web.forms import local_path


def test_after_the_login_one_goes_to_a_page_of_ours() -> None:
    for path in ("/console", "/console?span=day", "/console/jobs?state=dead"):
        assert local_path(path, "/console") == path
    evil = (
        "",
        "//evil",
        "https://evil",
        "/console//evil",
        "/console\\evil",
        "javascript:x",
        "/consoles",
        "/console/\n",
    )
    for other in (None, *evil):
        assert local_path(other, "/console") == "/console"

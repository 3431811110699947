"""What a person gets to read of a compiler's output."""

from fencepost_judge._compiling import MESSAGE_BYTES_MAX, clean


def test_colours_control_characters_and_paths_of_the_box_are_gone() -> None:
    said = b"\x1b[01m\x1b[K/app/main.c:1:1:\x1b[m \x07error\x00: \xe2\x80\xae<script>\x1b]0;title\x07"

    assert clean(said) == "main.c:1:1: error: <script>"


def test_lines_and_tabs_stay() -> None:
    assert clean(b"a\n\tb\r\n") == "a\n\tb\n"


def test_a_long_message_is_cut_and_says_so() -> None:
    assert clean(b"x" * 100_000) == "x" * MESSAGE_BYTES_MAX + "\n… (cut)"


def test_bytes_that_are_no_text_do_not_break_it() -> None:
    assert "\ufffd" in clean(b"\xff\xfe")

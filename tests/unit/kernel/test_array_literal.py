"""Texts are written all at once, and stay as many as they were."""

from fencepost.kernel.array_literal import as_literals


def test_texts_are_escaped_and_kept_apart() -> None:
    assert as_literals((["a", 'b"c', "\\d", "", "e,f"],)) == ('{"a","b\\"c","\\\\d","","e,f"}',)


def test_a_text_with_a_nul_is_still_one_element() -> None:
    """PostgreSQL refuses it; two elements out of one it would take."""
    assert as_literals((["a\0b", "c"],)) == ('{"a\0b","c"}',)


def test_no_element_and_no_text_are_not_the_same() -> None:
    assert as_literals(([], [""])) == ("{}", '{""}')


def test_what_is_missing_is_null() -> None:
    assert as_literals((["a", None, 7],)) == ('{"a",NULL,7}',)

"""Mutants that change nothing that a caller could see, each with its reason."""

EXCUSED: dict[str, str] = {}

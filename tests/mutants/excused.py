"""What the mutants cannot show, each with its reason."""

# Mutants that change nothing that a caller could see.
EXCUSED: dict[str, str] = {}

# RAISEs that the quick tests do not reach: the beginning of their message, and who does.
REACHED_ELSEWHERE = {
    "raise exception 'state has % bytes": "a state of 256 MB: kernel/test_checkpoint.py with --full",
}

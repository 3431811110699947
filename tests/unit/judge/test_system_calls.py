"""The filter that bubblewrap gets is the one that fencepost-box has."""

import re
import struct
from pathlib import Path

import pytest

from fencepost_judge.sandbox._box_binary import SOURCES
from fencepost_judge.sandbox._system_calls import NEWEST_CALL, REFUSED, WEIGHED, filter_program

GUARD = (SOURCES / "guard.c").read_text(encoding="utf-8")
HEADERS = {
    0: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    1: Path("/usr/include/asm-generic/unistd.h"),
}
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
X86, ARM = 0xC000003E, 0xC00000B7


def decide(program: bytes, number: int, *arguments: int, architecture: int = X86) -> int:
    """What the kernel would answer: the few instructions that the filter is made of."""
    data = struct.pack("=iIQ6Q", number, architecture, 0, *(*arguments, *[0] * (6 - len(arguments))))
    steps = list(struct.iter_unpack("=HBBI", program))
    place = held = 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("=I", data, value)
            case 0x54:
                held &= value
            case 0x06:
                return int(value)
            case _:
                test = {0x15: held == value, 0x25: held > value, 0x45: bool(held & value)}[code]
                place += if_true if test else if_false


def test_both_filters_name_the_same_calls() -> None:
    denied = set(re.findall(r"DENY\((\w+), E", GUARD)) | set(
        re.findall(r" DENY_BUT\((\w+), [A-Z]+\),", GUARD)
    )
    weighed = set(re.findall(r"WEIGH\((\w+), [A-Z]+\)", GUARD))

    assert denied == set(REFUSED)
    assert weighed == set(WEIGHED)
    assert f"#define NEWEST_CALL {NEWEST_CALL}\n" in GUARD


@pytest.mark.parametrize("column", [0, 1])
def test_the_numbers_are_those_of_the_kernel(column: int) -> None:
    if not HEADERS[column].exists():
        pytest.skip("the kernel's headers are not here (Debian: linux-libc-dev)")
    text = HEADERS[column].read_text(encoding="utf-8")
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    newest = max(number for name, number in known.items() if name != "syscalls")
    ours = {name: numbers[column] for name, numbers in {**REFUSED, **WEIGHED}.items()}
    told = {name: number for name, number in ours.items() if number is not None and number <= newest}

    assert told == {name: known[name] for name in told}


@pytest.mark.parametrize(("machine", "column", "architecture"), [("x86_64", 0, X86), ("aarch64", 1, ARM)])
def test_every_refused_call_is_refused_and_the_others_are_not(
    machine: str, column: int, architecture: int
) -> None:
    program = filter_program(machine)
    refused = {numbers[column]: name for name, numbers in REFUSED.items() if numbers[column] is not None}
    weighed = {numbers[column] for numbers in WEIGHED.values()}
    answers = {
        number: decide(program, number, architecture=architecture)
        for number in range(NEWEST_CALL + 3)
        if number not in weighed
    }

    assert {number for number, answer in answers.items() if answer == EPERM} == {
        number for number, name in refused.items() if name != "clone3"
    }
    assert {number for number, answer in answers.items() if answer == ENOSYS} == {
        REFUSED["clone3"][column],
        NEWEST_CALL + 1,
        NEWEST_CALL + 2,
    }
    assert decide(program, 0, architecture=1) == KILL


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("clone", [0x11], ALLOW),
        ("clone", [0x10000011], EPERM),
        ("mknodat", [0, 0, 0o010644], ALLOW),
        ("mknodat", [0, 0, 0o020644], EPERM),
        ("ioctl", [0, 0x5401], ALLOW),
        ("ioctl", [0, 0x5412], EPERM),
        ("prlimit64", [0], ALLOW),
        ("prlimit64", [1], EPERM),
        ("personality", [0xFFFFFFFF], ALLOW),
        ("personality", [0x0040000], EPERM),
    ],
)
def test_some_calls_are_weighed_by_their_arguments(name: str, arguments: list[int], answer: int) -> None:
    for machine, column, architecture in (("x86_64", 0, X86), ("aarch64", 1, ARM)):
        got = decide(filter_program(machine), WEIGHED[name][column], *arguments, architecture=architecture)
        assert got == answer

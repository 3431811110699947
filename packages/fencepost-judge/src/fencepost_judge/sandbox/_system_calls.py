"""The filter of `box/guard.c` again, for bubblewrap: the system calls that an untrusted program may not make.

It is generated as a BPF program, without a compiler. A test compares both lists with each other, and these
numbers with the kernel's own headers.
"""

from __future__ import annotations

import errno
import platform
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass

# Calls above this one did not exist when this was written: they have not been reviewed.
NEWEST_CALL = 462

REFUSED: Mapping[str, tuple[int | None, int | None]] = {
    # Other processes, and their memory.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    # Mounts and namespaces.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone3": (435, 435),
    # The kernel's keys, rings, programs and faults.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # What outlives a run or reaches past it: System V objects, queues, every kind of socket but a pair.
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    # Of x86_64 only.
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "_sysctl": (156, None),
    "mknod": (133, None),
}
WEIGHED: Mapping[str, tuple[int, int]] = {
    "clone": (56, 220),
    "mknodat": (259, 33),
    "ioctl": (16, 29),
    "prlimit64": (302, 261),
    "personality": (135, 92),
}
"""Calls that are refused by their arguments. All numbers are those of x86_64 and of aarch64."""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NEW_NAMESPACES = 0x7E020000
_TIOCSTI = 0x5412
_LOAD, _ANSWER, _AND = 0x20, 0x06, 0x54
_EQUALS, _ABOVE, _HAS_BITS = 0x15, 0x25, 0x45
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction; jumps are relative to the next one."""

    code: int
    value: int
    if_true: int = 0
    if_false: int = 0

    def packed(self) -> bytes:
        return struct.pack("=HBBI", self.code, self.if_true, self.if_false, self.value)


def is_known_machine() -> bool:
    return platform.machine() in _ARCHITECTURES


def filter_program(machine: str | None = None) -> bytes:
    """In the form that seccomp takes and `bwrap --seccomp` reads."""
    column, architecture = _ARCHITECTURES[machine or platform.machine()]
    steps = [
        _Step(_LOAD, _ARCHITECTURE_AT),
        _Step(_EQUALS, architecture, 1, 0),
        _Step(_ANSWER, _KILL),
        _Step(_LOAD, _NUMBER_AT),
        # The x32 calls of x86_64 have a bit set that is also above this number.
        *_refused(_Step(_ABOVE, NEWEST_CALL, 0, 1), errno.ENOSYS),
    ]
    for name, numbers in REFUSED.items():
        number = numbers[column]
        if number is not None:
            # glibc falls back from clone3, whose flags a filter cannot see.
            error = errno.ENOSYS if name == "clone3" else errno.EPERM
            steps += _refused(_Step(_EQUALS, number, 0, 1), error)
    for name, steps_of in _weighed().items():
        steps += [_Step(_EQUALS, WEIGHED[name][column], 0, len(steps_of)), *steps_of]
    steps.append(_Step(_ANSWER, _ALLOW))
    return b"".join(step.packed() for step in steps)


def _refused(test: _Step, error: int) -> list[_Step]:
    return [test, _Step(_ANSWER, _REFUSE | error)]


def _weighed() -> Mapping[str, list[_Step]]:
    """The instructions that decide about a call by its argument: each list ends with an answer either way."""
    allow, deny = _Step(_ANSWER, _ALLOW), _Step(_ANSWER, _REFUSE | errno.EPERM)

    def argument(number: int) -> _Step:
        return _Step(_LOAD, _ARGUMENTS_AT + 8 * number)

    return {
        # A thread and a process are allowed; a namespace is not.
        "clone": [argument(0), _Step(_HAS_BITS, _NEW_NAMESPACES, 0, 1), deny, allow],
        # A FIFO is allowed; a device is not.
        "mknodat": [
            argument(2),
            _Step(_AND, 0o170000),
            _Step(_EQUALS, stat.S_IFIFO, 1, 0),
            deny,
            allow,
        ],
        # Injecting input into a terminal.
        "ioctl": [argument(1), _Step(_EQUALS, _TIOCSTI, 0, 1), deny, allow],
        # Only the caller's own limits: process 1 has the same user id as the program.
        "prlimit64": [argument(0), _Step(_EQUALS, 0, 1, 0), deny, allow],
        # Only to read the personality.
        "personality": [argument(0), _Step(_EQUALS, 0xFFFFFFFF, 1, 0), deny, allow],
    }

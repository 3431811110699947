"""Which functions of the schema are the kernel's own: those of its files. Services bring theirs."""

import re

from fencepost.kernel.migrate import kernel

_DECLARED = re.compile(r"create or replace function fencepost\.(\w+)")

KERNEL_FUNCTIONS = frozenset(name for _, text in kernel().functions for name in _DECLARED.findall(text))

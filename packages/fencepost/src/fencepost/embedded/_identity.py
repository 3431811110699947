"""The account that a server runs as.

PostgreSQL refuses user id 0, and initdb refuses an id without a passwd entry. Root, and an id without a name
(usual in containers), therefore use another account's id:

1. in a user namespace of the server's own, which maps our id to that id. Nothing on disk changes: the files
   still belong to us;
2. if the kernel or the container refuses namespaces, root really becomes that account. The data then belongs
   to it. Parent directories are never opened to others: the server keeps only the right to traverse them.

Root that finds another account's data becomes that account.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, replace
from pathlib import Path

NOBODY = 65534


@dataclass(frozen=True)
class Identity:
    """An account to run as, and the method to switch to it (a key of DISGUISES in `reaper`)."""

    disguise: str
    uid: int
    gid: int

    @property
    def is_dropped(self) -> bool:
        """Whether the server is another account to the file system too."""
        return self.disguise.startswith("drop")

    def describe(self) -> str:
        if self.is_dropped:
            return f"uid {self.uid}, dropped from root"
        if self.disguise == "namespace":
            return f"uid {os.geteuid()}, shown to the server as {self.uid} in a user namespace"
        return f"uid {self.uid}"

    def reaching(self, *paths: Path) -> Identity:
        """The same identity, able to reach these paths."""
        if not self.is_dropped or all(_is_reachable(path, self) for path in paths):
            return self
        return replace(self, disguise="drop but search")

    def own(self, path: Path) -> None:
        """Give the identity a file or directory of ours. Files of other accounts are left unchanged."""
        if self.is_dropped and path.stat().st_uid == os.geteuid():
            os.chown(path, self.uid, self.gid)

    def own_tree(self, top: Path) -> None:
        for directory, _, names in os.walk(top):
            self.own(Path(directory))
            for name in names:
                self.own(Path(directory, name))


def ourselves() -> Identity:
    return Identity("stay", os.geteuid(), os.getegid())


def candidates(data: Path) -> list[Identity]:
    """The identities under which PostgreSQL may run on this data directory, best first."""
    uid = os.geteuid()
    if uid == 0 and data.exists() and data.stat().st_uid != 0:
        return [Identity("drop", data.stat().st_uid, data.stat().st_gid)]
    if uid != 0 and _has_name(uid):
        return [ourselves()]
    stand_in = _stand_in()
    if stand_in is None:
        return []
    means = ["namespace", "drop"] if uid == 0 else ["namespace"]
    return [Identity(disguise, stand_in.pw_uid, stand_in.pw_gid) for disguise in means]


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _stand_in() -> pwd.struct_passwd | None:
    """An account that is not root and has a name: nobody, or the first one found."""
    others = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    return next((entry for entry in others if entry.pw_uid == NOBODY), others[0] if others else None)


def _is_reachable(path: Path, identity: Identity) -> bool:
    """Whether the account may enter every existing directory on the path."""
    return all(may_enter(parent, identity) for parent in path.resolve().parents)


def may_enter(directory: Path, identity: Identity) -> bool:
    """The kernel's rule: the first matching class of owner, group and others decides alone."""
    try:
        status = directory.stat()
    except FileNotFoundError:
        return True
    if status.st_uid == identity.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == identity.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)

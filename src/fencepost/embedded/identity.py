"""Who a server runs as.

PostgreSQL refuses user id 0, and initdb refuses an id without a passwd entry. Root, and an id without a name
(usual in containers), therefore put on another account's number:

1. in a user namespace of the server's own, where our id is shown as that number. Nothing on disk changes: the
   files belong to us as before;
2. where the kernel or the container refuses namespaces, root really becomes that account. The data then
   belongs to it. Directories on the way are never opened: the server keeps the one capability to pass through.
"""

import os
import pwd
from dataclasses import dataclass, replace
from pathlib import Path

NOBODY = 65534


@dataclass(frozen=True)
class Identity:
    """An account to run as, and the means to get there (a key of the keeper's DISGUISES)."""

    disguise: str
    uid: int
    gid: int
    owner: int
    """The user id that the server's files have on disk."""

    def describe(self) -> str:
        return {
            "stay": f"uid {self.uid}",
            "namespace": f"uid {self.owner}, shown to the server as {self.uid} in a user namespace",
        }.get(self.disguise, f"uid {self.uid}, dropped from root")

    def reaching(self, *paths: Path) -> "Identity":
        """The same identity, able to reach these paths."""
        if self.disguise != "drop" or all(_is_reachable(path, self) for path in paths):
            return self
        return replace(self, disguise="drop but search")

    def own(self, path: Path) -> None:
        """Give a file or a directory tree of ours to the identity."""
        if path.stat(follow_symlinks=False).st_uid == self.owner:
            return
        if path.is_dir() and not path.is_symlink():
            for child in path.iterdir():
                self.own(child)
        # Last, so that a tree whose top is the identity's is so throughout, also after a crash here.
        os.chown(path, self.owner, -1, follow_symlinks=False)


def ourselves() -> Identity:
    return Identity("stay", os.geteuid(), os.getegid(), os.geteuid())


def candidates() -> list[Identity]:
    """The identities under which PostgreSQL may run here, best first."""
    uid = os.geteuid()
    if uid != 0 and _has_name(uid):
        return [ourselves()]
    stand_in = _stand_in()
    if stand_in is None:
        return []
    namespace = Identity("namespace", stand_in.pw_uid, stand_in.pw_gid, uid)
    drop = Identity("drop", stand_in.pw_uid, stand_in.pw_gid, stand_in.pw_uid)
    return [namespace, drop] if uid == 0 else [namespace]


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _stand_in() -> pwd.struct_passwd | None:
    others = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    return next((entry for entry in others if entry.pw_uid == NOBODY), others[0] if others else None)


def _is_reachable(path: Path, identity: Identity) -> bool:
    """Whether the account may enter every directory on the way that exists."""
    return all(_may_enter(parent, identity) for parent in path.resolve().parents)


def _may_enter(directory: Path, identity: Identity) -> bool:
    try:
        status = directory.stat()
    except FileNotFoundError:
        return True
    if status.st_uid == identity.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == identity.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)

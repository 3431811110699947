"""A disk in memory that loses what was not synced when the power is cut. No I/O: `fuse_server` serves it.

It keeps what a journalling file system keeps: a sync of a file makes its bytes durable, and the names of
everything that was made, renamed or removed before it. What was not synced is lost.
"""

from __future__ import annotations

import errno
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

ROOT = 1


@dataclass
class DiskNode:
    """A file, a folder, a link or a socket."""

    number: int
    mode: int
    data: bytearray = field(default_factory=bytearray)
    names: dict[bytes, int] = field(default_factory=dict[bytes, int])
    links: int = 1
    changed: float = field(default_factory=time.time)
    lookups: int = 0
    """How many references the kernel holds: a file that was removed lives on while it is open."""
    durable: bytearray = field(default_factory=bytearray)
    durable_names: dict[bytes, int] = field(default_factory=dict[bytes, int])
    dirty: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """What was written since the last sync, as ranges; empty with `resized` where only the size changed."""
    resized: bool = False

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


class VolatileDisk:
    """Nodes by number. Errors are OSErrors with the errno of a real file system."""

    def __init__(self) -> None:
        self.nodes: dict[int, DiskNode] = {ROOT: DiskNode(ROOT, stat.S_IFDIR | 0o700, links=2)}
        self.is_full = False
        self._next = ROOT
        self._changed_folders: set[int] = set()
        self._changed_files: set[int] = set()

    def look_up(self, folder: int, name: bytes) -> DiskNode:
        number = self._folder(folder).names.get(name)
        if number is None:
            raise OSError(errno.ENOENT, "there is no such name")
        return self.nodes[number]

    def make(self, folder: int, name: bytes, mode: int) -> DiskNode:
        parent = self._folder(folder)
        if name in parent.names:
            raise OSError(errno.EEXIST, "the name is taken")
        self._need_room()
        self._next += 1
        node = self.nodes[self._next] = DiskNode(self._next, mode, links=2 if stat.S_ISDIR(mode) else 1)
        parent.names[name] = node.number
        self._changed_folders |= {folder, node.number}
        self._changed_files.add(node.number)
        return node

    def link(self, folder: int, name: bytes, number: int) -> DiskNode:
        self._folder(folder).names[name] = number
        self.nodes[number].links += 1
        self._changed_folders.add(folder)
        return self.nodes[number]

    def remove(self, folder: int, name: bytes) -> None:
        node = self.look_up(folder, name)
        if node.is_folder and node.names:
            raise OSError(errno.ENOTEMPTY, "the folder is not empty")
        del self._folder(folder).names[name]
        node.links -= 2 if node.is_folder else 1
        self._changed_folders.add(folder)

    def rename(self, old_folder: int, old: bytes, new_folder: int, new: bytes) -> None:
        node = self.look_up(old_folder, old)
        if new in self._folder(new_folder).names and self.look_up(new_folder, new) is not node:
            self.remove(new_folder, new)
        del self._folder(old_folder).names[old]
        self._folder(new_folder).names[new] = node.number
        self._changed_folders |= {old_folder, new_folder}

    def read(self, number: int, offset: int, size: int) -> bytes:
        return bytes(self.nodes[number].data[offset : offset + size])

    def write(self, number: int, offset: int, data: bytes) -> None:
        self._need_room()
        node = self.nodes[number]
        if offset > len(node.data):
            node.data.extend(bytes(offset - len(node.data)))
        node.data[offset : offset + len(data)] = data
        node.dirty.append((offset, offset + len(data)))
        self._touch(node)

    def resize(self, number: int, size: int) -> None:
        node = self.nodes[number]
        if size > len(node.data):
            self._need_room()
            node.data.extend(bytes(size - len(node.data)))
        del node.data[size:]
        node.resized = True
        self._touch(node)

    def sync(self, number: int) -> None:
        """Sync the file's bytes, and every name: the journal is written in order."""
        node = self.nodes[number]
        if not node.is_folder:
            self._sync_bytes(node)
        for folder in self._changed_folders & self.nodes.keys():
            self.nodes[folder].durable_names = dict(self.nodes[folder].names)
        self._changed_folders.clear()

    def sync_all(self) -> None:
        for number in list(self._changed_files & self.nodes.keys()):
            self._sync_bytes(self.nodes[number])
        self.sync(ROOT)

    def cut_power(self) -> None:
        """Drop what was not synced, and every open file."""
        for folder in self._changed_folders & self.nodes.keys():
            self.nodes[folder].names = dict(self.nodes[folder].durable_names)
        for number in self._changed_files & self.nodes.keys():
            node = self.nodes[number]
            node.data = bytearray(node.durable)
            node.dirty, node.resized = [], False
        self._changed_folders.clear()
        self._changed_files.clear()
        reached = dict(self._reached())
        self.nodes = {ROOT: self.nodes[ROOT], **{number: self.nodes[number] for number in reached}}
        for number, links in reached.items():
            self.nodes[number].links = links + (1 if self.nodes[number].is_folder else 0)

    def forget(self, number: int, lookups: int) -> None:
        """The kernel drops references to a node. One without references and names is removed."""
        node = self.nodes.get(number)
        if node is not None:
            node.lookups -= lookups
            if node.lookups <= 0 and node.links <= 0 and number not in self._durably_named():
                del self.nodes[number]

    def _durably_named(self) -> set[int]:
        return {
            number
            for folder in self._changed_folders & self.nodes.keys()
            for number in self.nodes[folder].durable_names.values()
        }

    def _sync_bytes(self, node: DiskNode) -> None:
        if node.resized or len(node.durable) < len(node.data):
            del node.durable[len(node.data) :]
            node.durable.extend(bytes(len(node.data) - len(node.durable)))
        for start, end in node.dirty:
            node.durable[start:end] = node.data[start:end]
        if len(node.durable) != len(node.data):
            node.durable = bytearray(node.data)
        node.dirty, node.resized = [], False
        self._changed_files.discard(node.number)

    def _reached(self) -> Iterator[tuple[int, int]]:
        counts: dict[int, int] = {}
        folders = [self.nodes[ROOT]]
        for folder in folders:
            for number in folder.names.values():
                counts[number] = counts.get(number, 0) + 1
                if self.nodes[number].is_folder:
                    folders.append(self.nodes[number])
        yield from counts.items()

    def _folder(self, number: int) -> DiskNode:
        node = self.nodes[number]
        if not node.is_folder:
            raise OSError(errno.ENOTDIR, "it is no folder")
        return node

    def _need_room(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "the disk is full")

    def _touch(self, node: DiskNode) -> None:
        node.changed = time.time()
        self._changed_files.add(node.number)

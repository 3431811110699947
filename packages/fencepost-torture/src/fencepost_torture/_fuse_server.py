"""The process that serves a `VolatileDisk` to the kernel, by the protocol of /dev/fuse (7.31).

It runs as a program: its argument is the descriptor of the device, and it reads words from standard input:
`cut` drops what was not synced, `sync` syncs everything, `fill` and `drain` make the disk full and not. It
answers each with a line. When it ends, for any reason, the kernel ends the file system with it.

The kernel caches nothing beyond an open: after a cut, opening a file reads what the disk still has.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import struct
import sys
from collections.abc import Callable, Mapping

from fencepost_torture._volatile_disk import DiskNode, VolatileDisk

MAX_WRITE = 131072
REQUEST_BYTES = MAX_WRITE + 4096
HEADER = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
BIG_WRITES_AND_TRUNCATE_AND_MAX_PAGES = 1 << 5 | 1 << 3 | 1 << 22
SET_MODE, SET_SIZE = 1, 8
O_TRUNC = os.O_TRUNC


class FuseServer:
    """Answers requests, one after another."""

    def __init__(self, device: int, disk: VolatileDisk) -> None:
        self._device = device
        self._disk = disk
        self._answers: Mapping[int, Callable[[int, bytes], bytes | None]] = {
            1: self._look_up,
            2: self._forget,
            3: self._attributes,
            4: self._change,
            5: self._read_link,
            6: self._symlink,
            8: self._mknod,
            9: self._mkdir,
            10: self._remove,
            11: self._remove,
            12: self._rename,
            13: self._link,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            18: _nothing,
            20: self._sync,
            26: self._init,
            27: self._open,
            28: self._list,
            29: _nothing,
            30: self._sync,
            35: self._create,
            36: _no_answer,
            38: _nothing,
            42: _no_answer,
            43: self._allocate,
            45: self._rename_with_flags,
        }

    def run(self) -> None:
        words = b""
        while True:
            ready, _, _ = select.select([self._device, 0], [], [])
            if 0 in ready:
                data = os.read(0, 4096)
                if not data:
                    return
                *lines, words = (words + data).split(b"\n")
                for line in lines:
                    self._obey(line.decode())
            if self._device in ready and not self._serve():
                return

    def _obey(self, word: str) -> None:
        match word:
            case "cut":
                self._disk.cut_power()
            case "sync":
                self._disk.sync_all()
            case "fill":
                self._disk.is_full = True
            case _:
                self._disk.is_full = False
        os.write(1, b"done\n")

    def _serve(self) -> bool:
        try:
            request = os.read(self._device, REQUEST_BYTES)
        except OSError as error:
            # Unmounted, or a request that was cancelled before it was read.
            return error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN)
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        try:
            answer = self._answers.get(opcode, _not_known)(node, request[HEADER.size :])
        except OSError as error:
            self._send(ANSWER.pack(ANSWER.size, -(error.errno or errno.EIO), unique))
            return True
        except KeyError:
            # A node from before a cut.
            self._send(ANSWER.pack(ANSWER.size, -errno.ESTALE, unique))
            return True
        if answer is not None:
            self._send(ANSWER.pack(ANSWER.size + len(answer), 0, unique) + answer)
        return True

    def _send(self, answer: bytes) -> None:
        try:
            os.write(self._device, answer)
        except OSError as error:
            if error.errno != errno.ENOENT:  # The request was interrupted.
                raise

    def _init(self, _node: int, body: bytes) -> bytes:
        _, _, readahead, flags = struct.unpack_from("<4I", body)
        ours = flags & BIG_WRITES_AND_TRUNCATE_AND_MAX_PAGES
        head = struct.pack(
            "<4I2H2I2HI", 7, 31, readahead, ours, 16, 12, MAX_WRITE, 1, MAX_WRITE // 4096, 0, 0
        )
        return head + bytes(28)

    def _look_up(self, folder: int, body: bytes) -> bytes:
        return self._entry(self._disk.look_up(folder, body.partition(b"\0")[0]))

    def _forget(self, node: int, body: bytes) -> None:
        self._disk.forget(node, *struct.unpack_from("<Q", body))

    def _attributes(self, node: int, _body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + _attributes_of(self._disk.nodes[node])

    def _change(self, node: int, body: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        found = self._disk.nodes[node]
        if valid & SET_SIZE:
            self._disk.resize(node, size)
        if valid & SET_MODE:
            (mode,) = struct.unpack_from("<I", body, 68)
            found.mode = stat.S_IFMT(found.mode) | stat.S_IMODE(mode)
        return self._attributes(node, b"")

    def _read_link(self, node: int, _body: bytes) -> bytes:
        return bytes(self._disk.nodes[node].data)

    def _symlink(self, folder: int, body: bytes) -> bytes:
        name, target, *_ = body.split(b"\0")
        node = self._disk.make(folder, name, stat.S_IFLNK | 0o777)
        self._disk.write(node.number, 0, target)
        return self._entry(node)

    def _mknod(self, folder: int, body: bytes) -> bytes:
        (mode,) = struct.unpack_from("<I", body)
        return self._entry(self._disk.make(folder, body[16:].partition(b"\0")[0], mode))

    def _mkdir(self, folder: int, body: bytes) -> bytes:
        mode, umask = struct.unpack_from("<II", body)
        name = body[8:].partition(b"\0")[0]
        return self._entry(self._disk.make(folder, name, stat.S_IFDIR | stat.S_IMODE(mode) & ~umask))

    def _remove(self, folder: int, body: bytes) -> bytes:
        self._disk.remove(folder, body.partition(b"\0")[0])
        return b""

    def _rename(self, folder: int, body: bytes, names_at: int = 8) -> bytes:
        (target,) = struct.unpack_from("<Q", body)
        old, new, *_ = body[names_at:].split(b"\0")
        self._disk.rename(folder, old, target, new)
        return b""

    def _rename_with_flags(self, folder: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body, 8)
        if flags:
            raise OSError(errno.EINVAL, "only plain renames")
        return self._rename(folder, body, 16)

    def _link(self, folder: int, body: bytes) -> bytes:
        (number,) = struct.unpack_from("<Q", body)
        return self._entry(self._disk.link(folder, body[8:].partition(b"\0")[0], number))

    def _open(self, node: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        if flags & O_TRUNC and not self._disk.nodes[node].is_folder:
            self._disk.resize(node, 0)
        return struct.pack("<QII", 0, 0, 0)

    def _create(self, folder: int, body: bytes) -> bytes:
        _, mode, umask, _ = struct.unpack_from("<4I", body)
        name = body[16:].partition(b"\0")[0]
        node = self._disk.make(folder, name, stat.S_IFREG | stat.S_IMODE(mode) & ~umask)
        return self._entry(node) + struct.pack("<QII", 0, 0, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return self._disk.read(node, offset, size)

    def _write(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        self._disk.write(node, offset, body[40 : 40 + size])
        return struct.pack("<II", size, 0)

    def _allocate(self, node: int, body: bytes) -> bytes:
        _, offset, length, mode = struct.unpack_from("<QQQI", body)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "only plain allocation")
        if offset + length > len(self._disk.nodes[node].data):
            self._disk.resize(node, offset + length)
        return b""

    def _sync(self, node: int, _body: bytes) -> bytes:
        self._disk.sync(node)
        return b""

    def _statfs(self, _node: int, _body: bytes) -> bytes:
        free = 0 if self._disk.is_full else 1 << 20
        return struct.pack("<5Q4I", 1 << 20, free, free, 1 << 20, 1 << 20, 4096, 255, 4096, 0) + bytes(24)

    def _list(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        found = self._disk.nodes[node]
        names = [(b".", node), (b"..", node), *found.names.items()]
        answer = b""
        for place, (name, number) in enumerate(names[offset:], offset + 1):
            kind = stat.S_IFMT(self._disk.nodes[number].mode) >> 12
            line = struct.pack("<QQII", number, place, len(name), kind) + name
            line += bytes(-len(line) % 8)
            if len(answer) + len(line) > size:
                break
            answer += line
        return answer

    def _entry(self, node: DiskNode) -> bytes:
        node.lookups += 1
        return struct.pack("<4Q2I", node.number, 0, 0, 0, 0, 0) + _attributes_of(node)


def _attributes_of(node: DiskNode) -> bytes:
    seconds = int(node.changed)
    size = len(node.data)
    times = (seconds, seconds, seconds)
    return ATTRIBUTES.pack(
        node.number, size, -(-size // 512), *times, 0, 0, 0, node.mode, max(1, node.links), 0, 0, 0, 4096, 0
    )


def _nothing(_node: int, _body: bytes) -> bytes:
    return b""


def _no_answer(_node: int, _body: bytes) -> None:
    """These requests take no reply."""


def _not_known(_node: int, _body: bytes) -> bytes:
    raise OSError(errno.ENOSYS, "not known here")


if __name__ == "__main__":
    FuseServer(int(sys.argv[1]), VolatileDisk()).run()

"""Clients that begin requests and never finish them, from many addresses of this machine.

    python -m tests.integration.web.slow_clients PORT COUNT PER_SECOND FIRST_ADDRESS

Most send a head without an end, one in ten a body without an end; each adds a few bytes every three seconds,
and comes again fifteen seconds after it was closed. Prints `all` when each has connected once, and runs until
its standard input ends.
"""

from __future__ import annotations

import errno
import heapq
import resource
import select
import socket
import sys
import time
from dataclasses import dataclass, field

HEAD = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n"
BODY = (
    b"POST /console/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\n"
)
TRICKLE_SECONDS = 3.0
RETURN_SECONDS = 15.0
BODY_EVERY = 10
ADDRESSES = 250


@dataclass
class Crowd:
    port: int
    first_address: int
    poll: select.epoll = field(default_factory=select.epoll)
    open: dict[int, tuple[socket.socket, int]] = field(default_factory=dict[int, tuple[socket.socket, int]])
    due: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])
    connected: set[int] = field(default_factory=set[int])

    def connect(self, number: int) -> None:
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        client.setblocking(False)
        client.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: a port for each destination.
        client.bind((f"127.0.{self.first_address}.{number % ADDRESSES + 1}", 0))
        if client.connect_ex(("127.0.0.1", self.port)) not in {0, errno.EINPROGRESS}:
            client.close()
            self.later(RETURN_SECONDS, number)
            return
        self.open[client.fileno()] = client, number
        self.poll.register(client, select.EPOLLOUT | select.EPOLLIN)

    def later(self, seconds: float, number: int, descriptor: int = -1) -> None:
        heapq.heappush(self.due, (time.monotonic() + seconds, number, descriptor))

    def ready(self, descriptor: int, events: int) -> None:
        client, number = self.open[descriptor]
        try:
            ended = events & (select.EPOLLERR | select.EPOLLHUP)
            if ended or (events & select.EPOLLIN and not client.recv(4096)):
                self.gone(descriptor)
            elif events & select.EPOLLOUT:
                self.poll.modify(client, select.EPOLLIN)
                client.send(HEAD if number % BODY_EVERY else BODY)
                self.connected.add(number)
                self.later(TRICKLE_SECONDS, number, descriptor)
        except OSError:
            self.gone(descriptor)

    def gone(self, descriptor: int) -> None:
        client, number = self.open.pop(descriptor)
        self.connected.add(number)
        client.close()
        self.later(RETURN_SECONDS, number)

    def act(self) -> None:
        """What is due by now: to come again, or to send a little more."""
        while self.due and self.due[0][0] <= time.monotonic():
            _, number, descriptor = heapq.heappop(self.due)
            if descriptor < 0:
                self.connect(number)
                continue
            known = self.open.get(descriptor)
            if known is not None and known[1] == number:
                try:
                    known[0].send(b"X-A: b\r\n" if number % BODY_EVERY else b"x")
                except OSError:
                    self.gone(descriptor)
                else:
                    self.later(TRICKLE_SECONDS, number, descriptor)


def main(port: int, count: int, per_second: float, first_address: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = Crowd(port, first_address)
    crowd.poll.register(sys.stdin, select.EPOLLIN | select.EPOLLHUP)
    for number in range(count):
        crowd.later(number / per_second, number)
    told = False
    while True:
        for descriptor, events in crowd.poll.poll(0.05):
            if descriptor == sys.stdin.fileno():
                return
            if descriptor in crowd.open:
                crowd.ready(descriptor, events)
        crowd.act()
        if not told and len(crowd.connected) == count:
            told = True
            sys.stdout.write("all\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))

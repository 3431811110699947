"""Clients of a Redis Cluster: each command goes to the node that has its key.

redis-py has a client of its own for clusters. It sends ASKING and the command that it is for over different
connections, closes the connections of other commands after a few redirections, and repeats writes whose
replies were lost. So the way of a command is decided here (`_slots.py`), and redis-py's plain client, one for
each node, sends it. What fails is raised, as by the plain client: the callers repeat what may be repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import redis
import redis.asyncio
import redis.asyncio.client
import redis.client
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fencepost.redis_streams._slots import (
    EVERYWHERE,
    REDIRECTIONS,
    Address,
    Route,
    SlotMap,
    combined,
    slot_of_command,
)

AWAY = (RedisConnectionError, RedisTimeoutError, OSError)
MAP_SECONDS = 2.0
"""How long a node is waited for that is asked for the map: there are others."""
Command = tuple[tuple[Any, ...], Mapping[str, Any]]


class ClusterRedis(redis.asyncio.Redis):
    """For an event loop."""

    def __init__(
        self, seeds: Sequence[Address], connect_node: Callable[[Address], redis.asyncio.Redis]
    ) -> None:
        self._slots = SlotMap(seeds)
        self._connect_node = connect_node
        self._nodes: dict[Address, Any] = {}
        self._reading = asyncio.Lock()
        # The parent has an encoder and the parsers of replies; it opens no connection.
        cast("Any", super()).__init__(connection_pool=self._node(seeds[0]).connection_pool)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if str(args[0]).upper() in EVERYWHERE:
            await self._read_slots()
            primaries = [self._node(address) for address in self._slots.primaries]
            answers = await self._all([node.execute_command(*args, **options) for node in primaries])
            return combined(str(args[0]).upper(), answers)
        route = Route(self._slots, slot_of_command(args))
        while True:
            await self._read_slots()
            node = self._node(route.target)
            try:
                if route.is_asking:
                    return await self._ask(node, args, options)
                return await node.execute_command(*args, **options)
            except REDIRECTIONS as error:
                await asyncio.sleep(route.follow(error))
            except AWAY:
                self._slots.doubt()
                raise

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        assert not transaction, "the keys of a transaction lie in one slot: use a script"
        return _ClusterPipeline(self)

    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        """The answers, errors among them, in order. Commands for different nodes run at the same time."""
        await self._read_slots()
        parts: dict[Address, list[int]] = {}
        for number, (args, _) in enumerate(commands):
            parts.setdefault(self._slots.primary_of(slot_of_command(args)), []).append(number)
        answers: list[Any] = [None] * len(commands)

        async def execute(address: Address, numbers: Sequence[int]) -> None:
            pipe = self._node(address).pipeline(transaction=False)
            for number in numbers:
                args, options = commands[number]
                pipe.execute_command(*args, **options)
            for number, answer in zip(numbers, await pipe.execute(raise_on_error=False), strict=True):
                answers[number] = answer

        await self._all([execute(address, numbers) for address, numbers in parts.items()])
        for number, answer in enumerate(answers):
            if isinstance(answer, REDIRECTIONS):
                # It was not executed.
                args, options = commands[number]
                answers[number] = await _caught(self.execute_command(*args, **options))
        return answers

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.aclose(close_connection_pool)

    def _node(self, address: Address) -> Any:
        if address not in self._nodes:
            self._nodes[address] = self._connect_node(address)
        return self._nodes[address]

    async def _ask(self, node: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Both in one pipeline: ASKING holds for the next command of its connection."""
        pipe = node.pipeline(transaction=False)
        pipe.execute_command("ASKING")
        pipe.execute_command(*args, **options)
        _, answer = await pipe.execute(raise_on_error=False)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _all(self, calls: Sequence[Any]) -> list[Any]:
        """Wait for each, and then raise the first error."""
        answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        failed = next((answer for answer in answers if isinstance(answer, BaseException)), None)
        if isinstance(failed, AWAY):
            self._slots.doubt()
        if failed is not None:
            raise failed
        return answers

    async def _read_slots(self) -> None:
        if not self._slots.must_be_read():
            return
        async with self._reading:
            if not self._slots.must_be_read():
                return
            failure: Exception | None = None
            for address in self._slots.everyone:
                try:
                    async with asyncio.timeout(MAP_SECONDS):
                        answer = await self._node(address).execute_command("CLUSTER", "SLOTS")
                except (*AWAY, ResponseError, TimeoutError) as error:
                    failure = error
                    continue
                if self._slots.learn(answer, address):
                    return
            raise RedisConnectionError("No node of the cluster answers with its slots.") from failure


class _ClusterPipeline(redis.asyncio.client.Pipeline):
    def __init__(self, client: ClusterRedis) -> None:
        cast("Any", super()).__init__(
            client.connection_pool, client.response_callbacks, transaction=False, shard_hint=None
        )
        self._client = client

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands: list[Command] = cast("Any", self).command_stack
        self.command_stack = []
        answers = await self._client.execute_all(commands)
        return _checked(answers) if raise_on_error else answers


class SyncClusterRedis(redis.Redis):
    """For a thread."""

    def __init__(self, seeds: Sequence[Address], connect_node: Callable[[Address], redis.Redis]) -> None:
        self._slots = SlotMap(seeds)
        self._connect_node = connect_node
        self._nodes: dict[Address, Any] = {}
        cast("Any", super()).__init__(connection_pool=self._node(seeds[0]).connection_pool)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if str(args[0]).upper() in EVERYWHERE:
            self._read_slots()
            primaries = [self._node(address) for address in self._slots.primaries]
            answers = [node.execute_command(*args, **options) for node in primaries]
            return combined(str(args[0]).upper(), answers)
        route = Route(self._slots, slot_of_command(args))
        while True:
            self._read_slots()
            node = self._node(route.target)
            try:
                if route.is_asking:
                    return self._ask(node, args, options)
                return node.execute_command(*args, **options)
            except REDIRECTIONS as error:
                time.sleep(route.follow(error))
            except AWAY:
                self._slots.doubt()
                raise

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        assert not transaction, "the keys of a transaction lie in one slot: use a script"
        return _SyncClusterPipeline(self)

    def scan_iter(
        self, match: Any = None, count: Any = None, _type: Any = None, **options: Any
    ) -> Iterator[Any]:
        """The keys of all primaries."""
        self._read_slots()
        for address in self._slots.primaries:
            yield from self._node(address).scan_iter(match, count, _type, **options)

    def close(self) -> None:
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            node.close()

    def _node(self, address: Address) -> Any:
        if address not in self._nodes:
            self._nodes[address] = self._connect_node(address)
        return self._nodes[address]

    def _ask(self, node: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        pipe = node.pipeline(transaction=False)
        pipe.execute_command("ASKING")
        pipe.execute_command(*args, **options)
        _, answer = pipe.execute(raise_on_error=False)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _read_slots(self) -> None:
        if not self._slots.must_be_read():
            return
        failure: Exception | None = None
        for address in self._slots.everyone:
            try:
                answer = self._node(address).execute_command("CLUSTER", "SLOTS")
            except (*AWAY, ResponseError) as error:
                failure = error
                continue
            if self._slots.learn(answer, address):
                return
        raise RedisConnectionError("No node of the cluster answers with its slots.") from failure


class _SyncClusterPipeline(redis.client.Pipeline):
    def __init__(self, client: SyncClusterRedis) -> None:
        cast("Any", super()).__init__(
            client.connection_pool, client.response_callbacks, transaction=False, shard_hint=None
        )
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """One after another: a thread has time."""
        commands: list[Command] = cast("Any", self).command_stack
        self.command_stack = []
        answers: list[Any] = []
        for args, options in commands:
            try:
                answers.append(self._client.execute_command(*args, **options))
            except ResponseError as error:
                answers.append(error)
        return _checked(answers) if raise_on_error else answers


async def _caught(call: Any) -> Any:
    try:
        return await call
    except ResponseError as error:
        return error


def _checked(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers

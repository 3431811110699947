"""One system of a run: its environment, its processes, and its load generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from fencepost.testing import Breach
from fencepost_torture._load_generator import LoadGenerator
from fencepost_torture._schedule import ProcessRole
from fencepost_torture._system_environment import ProcessTask, System, SystemEnvironment


@dataclass
class SystemRun:
    """One system of the run."""

    system: System
    env: SystemEnvironment
    more: Mapping[str, Any]
    load_generator: LoadGenerator
    boots: int = 0

    def role(self, points: Sequence[str]) -> ProcessRole:
        return ProcessRole(
            self.env.name,
            self.system.processes,
            [point for point in self.system.points if not points or point in points],
            self.system.bears_clock_jumps,
            self.system.uses_redis,
            bool(getattr(self.system, "bears_restores", False)),
        )

    def remains(self) -> list[Breach]:
        return list(self.system.remains(self.env))

    def left_behind(self) -> list[Breach]:
        return left_behind(self.env)

    def task(self, place: int) -> ProcessTask:
        self.boots += 1
        return ProcessTask(
            self.env.name,
            place,
            self.boots,
            self.env.url,
            self.env.redis_url,
            str(self.env.operation_log.path),
            self.env.lease_seconds,
            self.more,
            str(self.env.clock_of(place)),
        )


# A lease's token only grows, and no lease is ever deleted, whatever a system does with its leases.
TOKENS: LiteralString = """
    create table token_breach (resource text, what text);
    create function note_token() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.token_breach values (old.resource, case tg_op
        when 'DELETE' then 'the lease was deleted' else old.token || ' was followed by ' || new.token end);
      return null;
    end $f$;
    create trigger token_went_back after update on fencepost.lease for each row
      when (new.token < old.token) execute function note_token();
    create trigger lease_deleted after delete on fencepost.lease for each row execute function note_token();
"""


def watch_tokens(env: SystemEnvironment) -> None:
    with env.database.connect_admin() as admin:
        admin.execute(TOKENS)


def tokens_grew(env: SystemEnvironment) -> list[Breach]:
    rows = env.rows("select resource, what from token_breach")
    return [Breach("tokens grow", resource, what) for resource, what in rows]


LEFT_BEHIND: LiteralString = """
    select 'connections', (select count(*) from pg_stat_activity where datname = current_database()
      and pid <> pg_backend_pid() and backend_type = 'client backend')
    union all select 'leases', (select count(*) from fencepost.lease_status where held)
    union all select 'running jobs', (select count(*) from fencepost.job_running)
    union all select 'prepared transactions',
      (select count(*) from pg_prepared_xacts where database = current_database())
"""


def left_behind(env: SystemEnvironment) -> list[Breach]:
    """Connections, leases, jobs and prepared transactions that remain after every process has ended."""
    return [
        Breach("left behind", what, f"{count} are still there")
        for what, count in env.rows(LEFT_BEHIND)
        if count
    ]

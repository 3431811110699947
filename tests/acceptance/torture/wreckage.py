"""What lies on a stage is changed, and the system looks at it."""

from typing import Any, LiteralString

from fencepost_torture._system_environment import SystemEnvironment


def wreck(env: SystemEnvironment, *statements: LiteralString) -> None:
    with env.database.connect_admin() as admin:
        for statement in statements:
            assert admin.execute(statement).rowcount != 0, statement


def rules(system: Any, env: SystemEnvironment) -> set[str]:
    return {breach.rule for breach in system.judge(env)}


def left(system: Any, env: SystemEnvironment) -> set[str]:
    return {breach.key for breach in system.remains(env)}

"""What lies on a stage is changed, and the system looks at it."""

from typing import Any, LiteralString

from fencepost_torture.system_environment import SystemEnvironment


def wreck(stage: SystemEnvironment, *statements: LiteralString) -> None:
    with stage.database.connect_admin() as admin:
        for statement in statements:
            assert admin.execute(statement).rowcount != 0, statement


def rules(system: Any, stage: SystemEnvironment) -> set[str]:
    return {breach.rule for breach in system.judge(stage)}


def left(system: Any, stage: SystemEnvironment) -> set[str]:
    return {breach.key for breach in system.remains(stage)}

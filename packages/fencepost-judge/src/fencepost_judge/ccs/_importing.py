"""Stores what was imported, in one transaction: all of it or nothing."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Call
from fencepost_judge import _contests as contests
from fencepost_judge import _teams as teams
from fencepost_judge._role import ACCOUNTS, JudgeRole
from fencepost_judge._scoreboard import Contest
from fencepost_judge.ccs._imports import Imported, ImportedAccount

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Without characters that look alike on paper."""
PASSWORD_LENGTH = 12


@dataclass(frozen=True, slots=True)
class IssuedPassword:
    """A password to print. Only its hash is stored."""

    username: str
    password: str
    team: str | None
    team_name: str | None


def new_password() -> str:
    """About 60 bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(PASSWORD_LENGTH))


def numbered(prefix: str, count: int, group: str | None = None) -> Imported:
    """Teams `prefix` with a number, each with a user of that name and no password yet."""
    names = [f"{prefix}{number:0{max(2, len(str(count)))}}" for number in range(1, count + 1)]
    groups = () if group is None else (group,)
    return Imported(
        teams=[teams.Team(name, name, groups=groups) for name in names],
        accounts=[ImportedAccount(name, JudgeRole.CONTESTANT, None, name) for name in names],
    )


def with_passwords(found: Imported) -> tuple[Imported, list[IssuedPassword]]:
    """The accounts with a password each, and those that were made up here."""
    names = {one.id: one.name for one in found.teams}
    accounts, issued = list[ImportedAccount](), list[IssuedPassword]()
    for one in found.accounts:
        chosen = one if one.password else replace(one, password=new_password())
        accounts.append(chosen)
        if one.password is None and chosen.password is not None:
            issued.append(IssuedPassword(one.username, chosen.password, one.team, names.get(one.team or "")))
    return replace(found, accounts=accounts), issued


def calls_of(
    found: Imported, slug: str, actor: str, hashed: Callable[[str], str], known: Contest | None
) -> Iterator[Call[Any]]:
    """The calls that store it, in order. `known` is the contest as it is now, if it is there."""
    contest = found.contest or known
    if contest is None:
        raise InvalidInput(f"There is no contest {slug}; import its contest.yaml too.", field="contest")
    if found.problems is not None:
        contest = replace(contest, problems=found.problems)
    elif known is not None and not contest.problems:
        contest = replace(contest, problems=known.problems)
    if found.contest is not None or found.problems is not None:
        yield contests.put_contest(contest, actor)
    if found.organizations or found.groups or found.teams:
        yield teams.put_teams(
            slug, actor, organizations=found.organizations, groups=found.groups, teams=found.teams
        )
    for one in found.accounts:
        yield ACCOUNTS.set_user(one.username, one.role, None, actor, by_service=True)
        if one.password is not None:
            yield ACCOUNTS.set_password(one.username, hashed(one.password), actor, by_service=True)
        if one.role is JudgeRole.CONTESTANT and one.team is not None:
            yield teams.put_account(slug, one.username, one.team)


def summary(found: Imported) -> str:
    counts = {
        "contest": 1 if found.contest is not None else 0,
        "problems": len(found.problems or ()),
        "organizations": len(found.organizations),
        "groups": len(found.groups),
        "teams": len(found.teams),
        "accounts": len(found.accounts),
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"

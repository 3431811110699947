"""Files of contests and teams, as DOMjudge and the Contest API write them."""

from datetime import UTC, datetime, timedelta

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge._role import JudgeRole
from fencepost_judge._scoreboard import ContestProblem, TeamKind
from fencepost_judge._teams import Organization
from fencepost_judge.ccs._importing import with_passwords
from fencepost_judge.ccs._imports import ImportedAccount, read_files

START = datetime(2026, 10, 3, 9, tzinfo=UTC)
CONTEST = """
name: Autumn
start_time: 2026-10-03T11:00:00+02
duration: '5:00:00'
scoreboard_freeze_duration: '1:00:00'
penalty_time: 10
"""
OLD_CONTEST = """
name: Autumn
short-name: autumn
start-time: 2026-10-03T09:00:00+00:00
duration: 5:00:00
scoreboard-freeze-length: 1:00:00
penalty-time: 10
"""
PROBLEMS = """
problems:
  - {letter: A, short-name: fence-posts, color: red, rgb: '#ff0000'}
  - {id: painted-fence}
"""
TEAMS_TSV = (
    "teams\t1\n7\t4711\t3\tFoxes\tUniversity of Ljubljana\tUL\tSVN\t55\n8\t\t3\tOwls\tSmall College\t\tXX\t\n"
)
ACCOUNTS_TSV = "accounts\t1\nteam\tFoxes\tteam-007\tsecret-secret\njudge\tJo\tjo\t\n"
TEAMS_JSON = """[{"id": "7", "name": "Foxes", "group_ids": ["3"], "organization_id": "55",
 "location": {"description": "Room 1"}, "members": ["Ana", {"name": "Bor"}]}]"""
GROUPS_JSON = """[{"id": 3, "name": "Participants"}, {"id": "4", "name": "Guests", "sortorder": 9},
 {"id": "5", "name": "Testers", "hidden": true}]"""


@pytest.mark.parametrize("text", [CONTEST, OLD_CONTEST])
def test_a_contest_has_the_same_times_in_both_notations(text: str) -> None:
    found = read_files({"contest.yaml": text, "problemset.yaml": PROBLEMS}, "autumn").contest

    assert found is not None
    assert (found.starts_at, found.ends_at) == (START, START + timedelta(hours=5))
    assert (found.freeze_at, found.penalty_minutes) == (START + timedelta(hours=4), 10)
    assert found.problems == [
        ContestProblem("A", "fence-posts", "red", "#ff0000"),
        ContestProblem("B", "painted-fence"),
    ]


def test_tables_of_teams_bring_their_organizations_and_accounts_their_teams() -> None:
    found = read_files(
        {"groups.tsv": "groups\t1\n3\tParticipants\n", "teams.tsv": TEAMS_TSV, "accounts.tsv": ACCOUNTS_TSV},
        "autumn",
    )

    assert [(one.id, one.icpc_id, one.name, one.organization, one.groups) for one in found.teams] == [
        ("7", "4711", "Foxes", "55", ["3"]),
        ("8", None, "Owls", "Small-College", ["3"]),
    ]
    assert found.organizations == [
        Organization("55", "UL", "University of Ljubljana", "SVN"),
        Organization("Small-College", "Small College", "Small College"),
    ]
    assert found.accounts == [
        ImportedAccount("team-007", JudgeRole.CONTESTANT, "secret-secret", "7"),
        ImportedAccount("jo", JudgeRole.JURY),
    ]


def test_documents_say_who_competes_who_observes_and_who_is_hidden() -> None:
    found = read_files({"teams.json": TEAMS_JSON, "groups.json": GROUPS_JSON}, "autumn")

    assert [(one.id, one.kind) for one in found.groups] == [
        ("3", TeamKind.PARTICIPANTS),
        ("4", TeamKind.OBSERVERS),
        ("5", TeamKind.HIDDEN),
    ]
    assert (found.teams[0].members, found.teams[0].location) == (["Ana", "Bor"], "Room 1")


def test_an_account_without_a_password_gets_one_of_its_own_that_is_told() -> None:
    accounts = '[{"username": "a", "team_id": "7"}, {"username": "b"}, {"username": "c", "password": "p" }]'
    found, issued = with_passwords(
        read_files({"accounts.json": accounts, "teams.json": TEAMS_JSON}, "autumn")
    )

    assert [(one.username, one.team_name) for one in issued] == [("a", "Foxes"), ("b", None)]
    assert [one.password for one in found.accounts] == [issued[0].password, issued[1].password, "p"]
    assert issued[0].password != issued[1].password


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("teams.csv", "", "ending"),
        ("people.json", "[]", "the name says nothing"),
        ("people.tsv", "x\t1", "no TSV file has this name"),
        ("teams.tsv", "7\t1\t3\tFoxes", "the first line"),
        ("teams.json", '[{"id": "7"}]', "name is missing"),
        ("contest.yaml", "name: x", "start_time is missing"),
        ("accounts.json", '[{"username": "a", "type": "cook"}]', "unknown type"),
        ("teams.json", "{", "teams.json: "),
    ],
)
def test_a_file_that_is_wrong_is_named_with_the_reason(name: str, text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_files({name: text}, "autumn")

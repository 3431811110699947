"""The objects of the Contest API as JSON schemas, after the tables of its specification, 2023-06. Strict: a
property that is not listed is wrong."""

from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

ID = {"type": "string", "pattern": r"^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9_-])?$"}
IDS = {"type": "array", "items": ID, "uniqueItems": True}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
SPAN = {"type": "string", "pattern": r"^-?([1-9]\d*)?\d:[0-5]\d:[0-5]\d\.\d{3}$"}
TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
SECONDS = {"type": "number", "minimum": 0, "multipleOf": 0.001}
YES = {"type": "boolean"}
TYPE = {"enum": ["AC", "RE", "WA", "PE", "TLE", "MLE", "OLE", "RTE", "CE", "JE"]}
STATES = ("started", "frozen", "ended", "thawed", "finalized", "end_of_updates")


def thing(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


COMMAND = thing({"command": TEXT}, {"args": {"type": "string"}, "version": TEXT})
FILE = thing({"href": TEXT, "filename": TEXT, "mime": {"const": "application/zip"}})
STATE = thing({name: {"anyOf": [TIME, {"type": "null"}]} for name in STATES})
SCORE = thing({"num_solved": COUNT, "total_time": COUNT}, {"time": COUNT})
CELL = thing({"problem_id": ID, "num_judged": COUNT, "num_pending": COUNT, "solved": YES}, {"time": COUNT})
ROW = thing(
    {
        "rank": {"type": "integer", "minimum": 1},
        "team_id": ID,
        "score": SCORE,
        "problems": {"type": "array", "items": CELL},
    }
)
SCHEMAS: dict[str, dict[str, Any]] = {
    "contest": thing(
        {
            "id": ID,
            "name": TEXT,
            "formal_name": TEXT,
            "start_time": TIME,
            "duration": SPAN,
            "scoreboard_type": {"const": "pass-fail"},
            "penalty_time": COUNT,
        },
        {"scoreboard_freeze_duration": SPAN, "scoreboard_thaw_time": TIME},
    ),
    "state": STATE,
    "judgement-types": thing({"id": TYPE, "name": TEXT, "penalty": YES, "solved": YES}),
    "languages": thing(
        {
            "id": ID,
            "name": TEXT,
            "entry_point_required": {"const": False},
            "extensions": {
                "type": "array",
                "items": {"type": "string", "pattern": r"^[^.]+$"},
                "minItems": 1,
            },
        },
        {"compiler": COMMAND, "runner": COMMAND},
    ),
    "problems": thing(
        {
            "id": ID,
            "label": TEXT,
            "name": TEXT,
            "ordinal": COUNT,
            "time_limit": SECONDS,
            "test_data_count": {"type": "integer", "minimum": 1},
        },
        {"rgb": {"type": "string", "pattern": "^#[0-9a-fA-F]{3,6}$"}, "color": TEXT},
    ),
    "groups": thing({"id": ID, "name": TEXT}, {"type": TEXT, "icpc_id": TEXT}),
    "organizations": thing(
        {"id": ID, "name": TEXT},
        {"formal_name": TEXT, "country": {"type": "string", "pattern": "^[A-Z]{3}$"}, "icpc_id": TEXT},
    ),
    "teams": thing(
        {"id": ID, "name": TEXT, "label": TEXT, "group_ids": IDS, "hidden": YES},
        {"organization_id": ID, "display_name": TEXT, "icpc_id": TEXT},
    ),
    "persons": thing({"id": ID, "name": TEXT, "role": {"const": "contestant"}, "team_ids": IDS}),
    "accounts": thing({"id": ID, "username": TEXT, "type": {"const": "team"}, "team_id": ID}),
    "submissions": thing(
        {
            "id": ID,
            "language_id": ID,
            "problem_id": ID,
            "team_id": ID,
            "time": TIME,
            "contest_time": SPAN,
            "entry_point": {"type": ["string", "null"]},
        },
        {"files": {"type": "array", "items": FILE, "minItems": 1, "maxItems": 1}},
    ),
    "judgements": thing(
        {
            "id": ID,
            "submission_id": ID,
            "judgement_type_id": TYPE,
            "start_time": TIME,
            "start_contest_time": SPAN,
            "end_time": TIME,
            "end_contest_time": SPAN,
        },
        {"max_run_time": SECONDS},
    ),
    "runs": thing(
        {
            "id": ID,
            "judgement_id": ID,
            "ordinal": {"type": "integer", "minimum": 1},
            "judgement_type_id": TYPE,
            "time": TIME,
            "contest_time": SPAN,
            "run_time": SECONDS,
        }
    ),
    "clarifications": thing(
        {"id": ID, "text": TEXT, "time": TIME, "contest_time": SPAN},
        {"from_team_id": ID, "to_team_id": ID, "reply_to_id": ID, "problem_id": ID},
    ),
    "awards": thing({"id": ID, "citation": TEXT, "team_ids": IDS}),
    "scoreboard": thing(
        {"time": TIME, "contest_time": SPAN, "state": STATE, "rows": {"type": "array", "items": ROW}}
    ),
}


def check(kind: str, document: Any) -> None:
    validator: Any = Draft202012Validator(SCHEMAS[kind])
    validator.validate(document)

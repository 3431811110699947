"""No function builds a statement from text: what runs as the owner is what was reviewed."""

import re
from pathlib import Path

import pytest

import fencepost
from tests.integration.kernel.caller import Caller

FILES = sorted(Path(fencepost.__file__).parent.glob("**/functions/*.sql"))
COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
DYNAMIC = re.compile(
    r"\b(execute|query_to_xml\w*|dblink\w*|database_to_xml\w*|table_to_xml\w*)\b", re.IGNORECASE
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_function_file_executes_no_text(file: Path) -> None:
    assert DYNAMIC.findall(COMMENT.sub("", file.read_text())) == []


def test_the_files_were_found() -> None:
    assert len(FILES) >= 17


def test_no_function_in_the_database_executes_text(admin: Caller) -> None:
    rows = admin.rows(
        """select p.oid::regprocedure::text as signature, p.prosrc as source, l.lanname::text as language
           from pg_proc p join pg_language l on l.oid = p.prolang
           where p.pronamespace = 'fencepost'::regnamespace"""
    )

    assert {row["language"] for row in rows} == {"sql", "plpgsql"}
    assert [row["signature"] for row in rows if DYNAMIC.search(COMMENT.sub("", row["source"]))] == []


def test_the_search_for_it_finds_it() -> None:
    planted = "begin execute format('drop table %I', p_name); end -- execute"

    assert DYNAMIC.findall(COMMENT.sub("", planted)) == ["execute"]

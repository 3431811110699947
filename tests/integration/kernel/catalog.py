"""A database's schema as text, from its catalog: two that are equal here are equal for everybody."""

from typing import Any, LiteralString

from tests.integration.kernel.caller import Caller

QUESTIONS: dict[str, LiteralString] = {
    "relations": """
        select relname::text, relkind::text, relpersistence::text, reloptions, relowner::regrole::text,
               array(select unnest(relacl)::text order by 1) as rights, relispartition,
               pg_get_expr(relpartbound, oid) as bound, obj_description(oid, 'pg_class') as comment
        from pg_class where relnamespace = 'fencepost'::regnamespace order by 1""",
    "columns": """
        select attrelid::regclass::text, attnum, attname::text, format_type(atttypid, atttypmod), attnotnull,
               attidentity::text, attcollation::regcollation::text, pg_get_expr(d.adbin, d.adrelid) as default
        from pg_attribute a left join pg_attrdef d on (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        where attrelid in (select oid from pg_class where relnamespace = 'fencepost'::regnamespace
                           and relkind in ('r', 'p', 'v'))
          and attnum > 0 and not attisdropped order by 1, 2""",
    "constraints": """
        select conrelid::regclass::text, conname::text, pg_get_constraintdef(oid), convalidated
        from pg_constraint where connamespace = 'fencepost'::regnamespace order by 1, 2""",
    "indexes": """
        select indexrelid::regclass::text, pg_get_indexdef(indexrelid), indisvalid from pg_index
        where indrelid in (select oid from pg_class where relnamespace = 'fencepost'::regnamespace)
        order by 1""",
    "views": """
        select oid::regclass::text, pg_get_viewdef(oid) from pg_class
        where relnamespace = 'fencepost'::regnamespace and relkind = 'v' order by 1""",
    "sequences": """
        select seqrelid::regclass::text, seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle
        from pg_sequence
        where seqrelid in (select oid from pg_class where relnamespace = 'fencepost'::regnamespace)
        order by 1""",
    "functions": """
        select oid::regprocedure::text, pg_get_functiondef(oid), proowner::regrole::text,
               array(select unnest(proacl)::text order by 1) as rights
        from pg_proc where pronamespace = 'fencepost'::regnamespace order by 1""",
    "schema": """
        select nspowner::regrole::text, array(select unnest(nspacl)::text order by 1) as rights
        from pg_namespace where nspname = 'fencepost'""",
    "reasons": "select * from fencepost.refusal_reason order by reason",
    "versions": "select component, version, name from fencepost.schema_versions order by 1, 2",
}


def describe(admin: Caller) -> dict[str, list[dict[str, Any]]]:
    """Everything that a migration makes; nothing when there is no schema."""
    if admin.value("select to_regnamespace('fencepost') is null"):
        return {}
    return {topic: admin.rows(question) for topic, question in QUESTIONS.items()}

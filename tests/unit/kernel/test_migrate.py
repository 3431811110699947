"""What a component is, and which versions work together: decided without a server."""

from dataclasses import replace
from pathlib import Path

import pytest

import fencepost.kernel.migrate as migrations
from fencepost.errors import SchemaMissing, SchemaTooNew, SchemaTooOld, SettingsError
from fencepost.kernel.migrate import Component, SchemaStep, check_version, components, kernel
from fencepost.kernel.migrate import component as component_of
from fencepost.plugin import Plugin


def component(folder: Path, *files: str) -> Component:
    (folder / "schema").mkdir()
    (folder / "functions").mkdir()
    for file in files:
        (folder / file).write_text(f"-- {file}")
    return Component.read("example", folder)


def test_a_component_is_read_in_the_order_of_its_versions(tmp_path: Path) -> None:
    read = component(tmp_path, "schema/0002_b.sql", "schema/0001_a.sql", "functions/z.sql", "functions/y.sql")

    assert [(step.version, step.name) for step in read.steps] == [(1, "a"), (2, "b")]
    assert read.functions == (("y.sql", "-- functions/y.sql"), ("z.sql", "-- functions/z.sql"))
    assert (read.version, read.grants) == (2, kernel().grants)


@pytest.mark.parametrize(
    "files",
    [
        ["schema/0002_b.sql"],
        ["schema/0001_a.sql", "schema/0003_c.sql"],
        ["schema/0001_a.sql", "schema/0001_b.sql"],
    ],
    ids=["first missing", "gap", "twice"],
)
def test_versions_have_no_gap(tmp_path: Path, files: list[str]) -> None:
    with pytest.raises(AssertionError, match="example: schema versions have a gap"):
        component(tmp_path, *files)


def test_a_schema_file_is_named_by_its_version(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"1_a\.sql is not named NNNN_name\.sql"):
        component(tmp_path, "schema/1_a.sql")


def test_a_changed_file_has_another_digest() -> None:
    assert SchemaStep(1, "a", "create table a ()").digest == SchemaStep(2, "b", "create table a ()").digest
    assert SchemaStep(1, "a", "create table a ()").digest != SchemaStep(1, "a", "create table a () ").digest


def test_changed_functions_or_grants_have_another_digest() -> None:
    ours = kernel()
    name, text = ours.functions[0]

    others = (
        replace(ours, functions=((name, text + "-- more"), *ours.functions[1:])),
        replace(ours, functions=(("other.sql", text), *ours.functions[1:])),
        replace(ours, grants=ours.grants + "-- more"),
    )

    assert len({ours.digest, *(other.digest for other in others)}) == 4


def test_the_kernel_is_whole() -> None:
    names = {name for name, _ in kernel().functions}

    assert {"lease.sql", "idempotency.sql", "outbox.sql", "job.sql", "checkpoint.sql", "refusal.sql"} <= names
    assert kernel().version >= 6


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_database_of_this_version_or_the_next_is_right(ahead: int) -> None:
    check_version(kernel().version + ahead)


@pytest.mark.parametrize("behind", [1, 2])
def test_a_database_that_is_behind_is_refused_with_both_versions(behind: int) -> None:
    version = kernel().version

    with pytest.raises(
        SchemaTooOld, match=f"version {version - behind} of kernel.* {version} or {version + 1}"
    ) as caught:
        check_version(version - behind)
    assert "fencepost migrate" in str(caught.value)


def test_a_database_two_versions_ahead_is_refused_with_both_versions() -> None:
    version = kernel().version

    with pytest.raises(
        SchemaTooNew, match=f"version {version + 2} of kernel.* {version} or {version + 1}"
    ) as caught:
        check_version(version + 2)
    assert "Upgrade this process" in str(caught.value)


def test_a_database_without_a_schema_says_how_to_get_one() -> None:
    with pytest.raises(SchemaMissing, match=r"no Fencepost schema\. Run `fencepost migrate`"):
        check_version(None)
    with pytest.raises(SchemaMissing, match=r"no schema of orders\. Run `fencepost migrate`"):
        check_version(None, replace(kernel(), name="orders"))


def test_a_step_is_told_with_its_component_unless_that_is_the_kernel() -> None:
    step = SchemaStep(7, "leases", "")
    assert kernel().title(step) == "0007_leases"
    assert replace(kernel(), name="orders").title(step) == "orders/0007_leases"


def test_the_kernel_comes_before_whatever_is_built_on_it() -> None:
    names = [known.name for known in components()]
    assert names[0] == "kernel"
    # Orders name the topic of their webhooks.
    assert names.index("webhooks") < names.index("orders")
    assert {"flows", "judge", "nonces", "orders", "players"} <= set(names)
    assert component_of("orders").name == "orders"
    # As it is read from its folder, and not as it was remembered.
    assert vars(migrations)["component"].__wrapped__("orders") == component_of("orders")
    assert vars(migrations)["component"].__wrapped__("kernel") == kernel()


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin whose tables refer to those of another one, whose name comes later."""
    here = Path("nowhere")
    found = {
        "alpha": Plugin(name="alpha", about="a", schemas={"alpha": here}, requires=("beta",)),
        "zeta": Plugin(name="zeta", about="z", schemas={"beta": here, "gamma": here}, requires=("beta",)),
    }
    base = kernel()
    monkeypatch.setattr(migrations, "plugins", lambda: found)

    def named(name: str) -> Component:
        return replace(base, name=name)

    monkeypatch.setattr(migrations, "component", named)


@pytest.mark.usefixtures("strangers")
def test_a_component_comes_after_those_that_it_requires_and_brings_them_with_it() -> None:
    assert [known.name for known in components()] == ["kernel", "beta", "alpha", "flows", "gamma", "webhooks"]
    assert [known.name for known in components(["alpha"])] == ["kernel", "beta", "alpha"]
    assert [known.name for known in components(["gamma"])] == ["kernel", "beta", "gamma"]


@pytest.mark.usefixtures("strangers")
def test_a_component_that_is_required_and_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Plugin(name="alpha", about="a", schemas={"alpha": Path("nowhere")}, requires=("beta",))
    monkeypatch.setattr(migrations, "plugins", lambda: {"alpha": alone})
    with pytest.raises(SettingsError, match="requires the component 'beta', which no plugin provides"):
        components()


def test_functions_use_nothing_newer_than_postgresql_15() -> None:
    """The embedded server is newer than the oldest that is supported, so it would not notice."""
    newer = (
        "uuidv7(",
        "uuidv4(",
        "any_value(",
        "json_table(",
        "merge_action(",
        "array_sort(",
        "random_normal(",
    )

    for name, text in kernel().functions:
        assert [word for word in newer if word in text.lower()] == [], name

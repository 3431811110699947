"""The specifications hold, at three workers and three attempts; and none of their broken twins does."""

import re
from pathlib import Path

import pytest

from tests.specs.tlc import SPECS, Model, check

MODELS = Model.all()
WHOLE = [model for model in MODELS if model.refuted is None]
TWINS = [model for model in MODELS if model.refuted is not None]


@pytest.mark.parametrize("model", WHOLE, ids=lambda model: model.name)
def test_the_specification_holds(model: Model) -> None:
    outcome = check(model)
    assert outcome.holds, outcome.output
    assert outcome.distinct > 100, "a search that sees nothing proves nothing"


@pytest.mark.parametrize("model", TWINS, ids=lambda model: model.name)
def test_the_broken_twin_is_refuted(model: Model) -> None:
    outcome = check(model)
    assert outcome.violated == model.refuted, outcome.output


def test_every_specification_has_a_configuration_and_a_twin() -> None:
    names = {path.stem for path in SPECS.glob("*.tla")}
    assert {model.name for model in WHOLE} == names
    assert {model.name.partition(".")[0] for model in TWINS} == names


def test_every_switch_of_a_specification_is_off_in_a_twin() -> None:
    """A guard that no twin leaves out may guard nothing."""
    for specification in SPECS.glob("*.tla"):
        switches = set(re.findall(r"^    (\w+) = TRUE$", _config(specification), re.MULTILINE))
        off = {
            switch
            for twin in TWINS
            if twin.specification == specification
            for switch in re.findall(r"^    (\w+) = FALSE$", twin.config.read_text(), re.MULTILINE)
        }
        assert switches == off, specification.name


def _config(specification: Path) -> str:
    return specification.with_suffix(".cfg").read_text()

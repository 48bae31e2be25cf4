"""The docstrings of rows and facts say what each of their numbers is."""

import dataclasses
import re

import pytest

from altmin.explaining.rows import Facts, Milliseconds, Row

KNOWN_BY_NAME = {"block", "method", "samples"}


@pytest.mark.parametrize("kind", [Row, Facts])
def test_every_field_is_explained(kind: type) -> None:
    names = {field.name for field in dataclasses.fields(kind)} - KNOWN_BY_NAME
    missing = {name for name in names if not re.search(rf"\b{name}\b", str(kind.__doc__))}
    assert not missing


def test_the_parts_of_a_step_are_the_fields_of_its_times() -> None:
    """`Watch` finds them by these names."""
    assert Milliseconds._fields == ("forward", "codes", "weights")

"""Measurements beyond the paper: each file declares one as FIGURE."""

from functools import cache
from importlib import import_module

from reproduction.figure import Figure
from reproduction.folders import RESULTS
from reproduction.results import Results

NAMES = (
    *("binary", "continual", "defaults", "discrete", "estimators", "examples", "methods", "networks"),
    *("recurrent", "scaling", "speed", "streams"),
)


def figures() -> dict[str, Figure]:
    """All measurements by name."""
    found = [import_module(f"reproduction.measurements.{name}").FIGURE for name in NAMES]
    return {figure.name: figure for figure in found}


@cache
def results(name: str) -> Results:
    return Results.read(RESULTS / f"{name}.jsonl")

"""Measurements beyond the paper: each module declares a figure in a list FIGURES."""

from functools import cache

from reproduction.results import RESULTS, Results


@cache
def results(name: str) -> Results:
    return Results.read(RESULTS / f"{name}.jsonl")

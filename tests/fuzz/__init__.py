"""Fuzzers: `python -m tests.fuzz`. A part is a function of cases, seed and failures that adds a sentence to `failures`
for each case that failed and returns counters."""

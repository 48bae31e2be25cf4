"""The trial of the library: drawn cases, many of them wrong on purpose. `python -m tests.trial` runs it.

A part is a file with `trial(count, seed, failures)`: it runs `count` cases drawn with `seed`, adds a sentence to
`failures` for each that went wrong, and returns counters.
"""

"""Runners of the same step: many members at once, recorded as a CUDA graph or compiled, on several ranks."""

from altmin.runners.recorded import Recorded

__all__ = ["Recorded"]

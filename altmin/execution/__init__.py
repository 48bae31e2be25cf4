"""How the same step is run: many members at once, recorded as a CUDA graph, equal layers together."""

from altmin.execution.graph import Recorded

__all__ = ["Recorded"]

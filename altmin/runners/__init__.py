"""How the same step is run: many members at once, captured as a CUDA graph, on several ranks."""

from altmin.runners import capture_inference as capture_inference  # registers its captured step
from altmin.runners.recorded import Recorded

__all__ = ["Recorded"]

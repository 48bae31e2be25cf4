"""What a network's blocks are, what one step does to them, where its time goes, and advice: `altmin.explain`."""

from altmin.explaining.explanation import Explanation, explain
from altmin.explaining.rows import Facts, Row

__all__ = ["Explanation", "Facts", "Row", "explain"]

"""What one step does inside each block: `altmin.explain` measures it, `altmin.audit` looks for autograd."""

from altmin.explaining.audit import Audit, audit
from altmin.explaining.explanation import Explanation, Row, explain

__all__ = ["Audit", "Explanation", "Row", "audit", "explain"]

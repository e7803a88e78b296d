"""Tables that are computed on demand (critical path), and what-if estimates based on them."""

from tracewarehouse.derive.critical_path import Derived, derive
from tracewarehouse.derive.scopes import ScopeRequest

__all__ = ["Derived", "ScopeRequest", "derive"]

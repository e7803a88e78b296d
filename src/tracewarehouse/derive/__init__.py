"""Tables that are computed on demand (critical path), and what-if estimates based on them."""

from tracewarehouse.derive.critical_path import Derived, ScopeRequest, derive

__all__ = ["Derived", "ScopeRequest", "derive"]

"""Tables that are made on demand, and what would be if their parts took longer or shorter."""

from tracewarehouse.derive.critical_path import Derived, derive
from tracewarehouse.derive.scopes import Wanted

__all__ = ["Derived", "Wanted", "derive"]

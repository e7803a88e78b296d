"""Tables that are computed on demand (critical path), and what-if estimates based on them."""

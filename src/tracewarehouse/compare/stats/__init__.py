"""Statistics of comparisons: pure functions on numbers, independent of runs and warehouses."""

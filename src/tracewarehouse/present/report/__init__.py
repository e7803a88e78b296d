"""Reports: one HTML page about a run, about what changed between two, or about many."""

"""How fast and how frugal: each target measured beside its peer, in turn, with its answer checked."""

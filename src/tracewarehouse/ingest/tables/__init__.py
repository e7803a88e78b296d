"""The stored tables of a rank, each built from the columns of its activities: one module per table family."""

"""The stored form of a warehouse: Parquet files, commits and versions of runs."""

"""Parquet files and small manifests: the only truth."""

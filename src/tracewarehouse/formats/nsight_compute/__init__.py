"""Nsight Compute CSV files: metrics of profiled kernels."""

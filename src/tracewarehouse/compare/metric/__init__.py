"""METRIC, `ANALYSIS[@V].COLUMN[K=V,…]`: one number per run, for gates and for a history.

The column's `aggregate` combines several rows, as in a comparison: their sum, minimum or maximum, or one sum
over another. Sums are per rank, and per complete step if the rows have steps; if they grow with the recording
(`per` of the contract), per recorded step or second. So runs of different lengths are comparable. A measure
of entire steps (`step_time`) is the median of the complete steps, each the mean of its ranks. A column
without a `aggregate` needs filters that leave one row.
"""

"""HolisticTraceAnalysis 0.6.1 beside our tables: what both say, and which of HTA's rules set them apart."""

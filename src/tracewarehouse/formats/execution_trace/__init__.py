"""Execution traces of PyTorch (ExecutionTraceObserver): operators with their parents, inputs and outputs."""

"""Flight recorder dumps of PyTorch: the last collectives that a rank called."""

"""Run and rank of each trace: from its path, its file name, its header and the options of the call."""

"""CUDA memory snapshots, as torch.cuda.memory._dump_snapshot writes them."""

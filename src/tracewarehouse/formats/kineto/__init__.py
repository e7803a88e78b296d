"""Chrome trace JSON as written by Kineto (torch.profiler)."""

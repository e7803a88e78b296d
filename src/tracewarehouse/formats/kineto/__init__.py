"""Chrome JSON as Kineto (torch.profiler) writes it."""

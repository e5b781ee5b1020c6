"""What crossgate costs on this machine: processes, kernels, models, and how they grow."""

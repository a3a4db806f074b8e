"""The networks as plain torch modules, and kernels that compute them faster on some GPUs."""

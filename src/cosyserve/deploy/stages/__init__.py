"""The numbered stages from a checkpoint to a running, measured deployment."""

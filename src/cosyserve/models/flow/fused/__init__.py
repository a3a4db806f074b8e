"""The flow's networks for a GPU, in few launches."""

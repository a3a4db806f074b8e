"""Published folders: which kind one is, its sizes, its tensors under our names."""

from cosyserve.checkpoints.published.folder import read

__all__ = ["read"]

"""How the process of a model ends."""

from __future__ import annotations

import atexit
import os


class LeavesAtOnce:
    """A model whose process is gone as soon as Triton is done with it."""

    def finalize(self) -> None:
        """Triton gives back all that it shares with the process before it ends Python, which would
        then take torch apart for seconds, for nobody."""
        atexit.register(os._exit, 0)

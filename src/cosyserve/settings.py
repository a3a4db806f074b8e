"""Every setting once, with its environment name (COSYSERVE_...).

Knows no room that uses it. A command-line option overrides the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="COSYSERVE_", extra="ignore")

    model: str = "test"
    """A model folder, a Hub name, or `test` (random weights, not speech)."""
    home: Path = Path.home() / ".cosyserve"
    """Where voices and downloaded models are kept."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of LM and flow; `auto` is what the model folder holds."""
    threads: int = 0
    """CPU threads of torch; 0 = as many as torch likes."""

    host: str = "127.0.0.1"
    """Where the server listens; there are no keys yet, so not on the network by default."""
    port: int = 8080
    slots: int = 8
    """Requests that a worker computes at once."""
    waiting: int = 64
    """Requests that may wait for a worker; beyond, they are refused."""

    @property
    def voices(self) -> Path:
        return self.home / "voices"

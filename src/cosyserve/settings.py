"""Every setting once, with its environment name (COSYSERVE_...).

Knows no room that uses it. A command-line option overrides the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from cosyserve.errors import InputError

PREFIX = "COSYSERVE_"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", use_attribute_docstrings=True
    )

    model: str = "nano"
    """A model folder, `nano` (small, English, ours) or `test` (random weights, not speech)."""
    home: Path = Path.home() / ".cosyserve"
    """Where voices and downloaded models are kept."""
    voice_store: str = ""
    """Where voices are kept: a folder, `redis://…`, `rediss://…` or `unix://…`; empty is `voices`
    in the home."""
    engine: str = ""
    """Who computes: empty for workers here, or `triton://HOST:8001[,HOST:8001…]`."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    lm_device: str = ""
    """Of the LM alone; goes with `token2wav_device`, and makes two processes of a worker."""
    token2wav_device: str = ""
    """Of flow and vocoder alone."""
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8"] = "auto"
    """Precision of LM and flow; `auto` is bfloat16 on a GPU, and on a CPU what the folder holds;
    `int8` is bfloat16 with the LM's weights in eight bits where few sessions speak, for a GPU."""
    threads: int = Field(default=0, ge=0)
    """CPU threads of torch; 0 = as many as torch likes."""

    host: str = "127.0.0.1"
    """Where the server listens; set keys before you open it to a network."""
    port: int = Field(default=8080, ge=0, le=65535)
    """0 takes a free one."""
    api_keys: SecretStr = SecretStr("")
    """Keys that clients must send, separated by commas; empty: anybody may ask."""

    profile: Literal["latency", "throughput"] = "latency"
    """What a GPU is tuned for: few listeners who hear soon, or as many as it can serve."""
    slots: int = Field(default=0, ge=0)
    """Requests that a worker computes at once; 0: 8 on a CPU, what the profile has on a GPU."""
    waiting: int = Field(default=64, ge=0)
    """Requests that may wait for a worker; beyond, they are refused with 429."""
    max_wait_seconds: float = Field(default=1.0, gt=0)
    """That a request may have to wait for a worker, by the pace of those before it; beyond, it is
    refused with 429."""
    voice_cache_bytes: int = Field(default=64 << 20, ge=0)
    """Voices that a process keeps in memory; the least recently used go first."""

    max_requests: int = Field(default=512, ge=1)
    """Requests inside the server at once; beyond, they are refused with 429."""
    max_requests_per_key: int = Field(default=512, ge=1)
    """Requests with the same key inside the server at once; beyond, they are refused with 429."""
    max_connections: int = Field(default=1024, ge=1)
    """WebSockets that are open at once; beyond, they are refused with 429."""
    max_idle_seconds: float = Field(default=20.0, gt=0)
    """Until a WebSocket's first message, and from one piece of its text to the next."""
    max_body_bytes: int = Field(default=16 << 20, ge=1024)
    """Of a request's body, recordings included."""
    max_input_characters: int = Field(default=4096, ge=1)
    """Of a text to speak."""
    max_request_seconds: float = Field(default=600.0, gt=0)
    """Of one request, its client's slowness included."""
    shutdown_seconds: float = Field(default=30.0, ge=0)
    """That running requests have left after SIGTERM."""

    @property
    def voices(self) -> str:
        """A folder or a URL."""
        return self.voice_store or str(self.home / "voices")

    @property
    def keys(self) -> list[str]:
        given = self.api_keys.get_secret_value().split(",")
        return [key.strip() for key in given if key.strip()]

    @classmethod
    def read(cls) -> Settings:
        """What the environment says; what it says wrongly is one clear error."""
        try:
            return cls()
        except ValidationError as error:
            first = error.errors()[0]
            name = f"{PREFIX}{first['loc'][0]}".upper()
            raise InputError(f"{name}: {first['msg']}") from error

"""Every setting once, with its environment name (COSYSERVE_...) and its meaning.

A command-line option goes before the environment.
"""

from __future__ import annotations

from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PrivateAttr, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from cosyserve.choices import (
    LLM_SAMPLING,
    LM_FILE,
    MAX_UNREAD_BYTES,
    MAX_WAIT_SECONDS,
    MAX_WAITING,
    VOICE_CACHE_BYTES,
    FlowBackend,
    KernelChoice,
    PromptForm,
    gpu_budget,
    known_device,
    known_devices,
)
from cosyserve.contracts import MAX_TEMPERATURE, MIN_TEMPERATURE
from cosyserve.errors import InputError

PREFIX = "COSYSERVE_"
# Programs written for OpenAI's service name these; they get the model that is loaded.
OPENAI_MODELS = "tts-1,tts-1-hd,gpt-4o-mini-tts,gpt-4o-mini-tts-2025-12-15"
Temperature = Annotated[float, Field(ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE)]


class Dtype(StrEnum):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"


class ProfileName(StrEnum):
    LATENCY = "latency"
    THROUGHPUT = "throughput"


class Settings(BaseSettings):
    """What the environment and the command line say."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", use_attribute_docstrings=True, allow_inf_nan=False
    )

    model: str = "nano"
    """The model: a folder, `nano` (small, English, in the package) or `test` (random weights, not
    speech). A server may have several, separated by commas; a request that names none gets the
    first."""
    home: Path = Path.home() / ".cosyserve"
    """The folder that keeps voices and downloaded models."""
    voice_store: str = ""
    """The place that keeps voices: a folder, `redis://…`, `rediss://…` or `unix://…`; if empty, the
    folder `voices` in the home."""
    default_voice: str = ""
    """The voice that `default` is: the name of a stored voice or of one of the model's; if empty,
    the model's own."""
    engine: str = ""
    """The machines that compute: Triton servers, as `triton://HOST:8001[,HOST:8001…]`, or `ray` for
    workers on the nodes of a Ray cluster; if empty, workers on this machine compute."""
    device: Annotated[str, AfterValidator(known_device)] = "auto"
    """The device that computes: `auto`, `cpu`, `cuda` or `cuda:N`."""
    lm_device: Annotated[str, AfterValidator(known_devices)] = ""
    """The device of the LM, if flow and vocoder have one of their own."""
    token2wav_device: Annotated[str, AfterValidator(known_devices)] = ""
    """The devices of flow and vocoder, separated by commas, if the LM has one of its own; a request
    goes to the device with the fewest."""
    dtype: Dtype = Dtype.AUTO
    """The precision of LM and flow: `auto` (`bfloat16` on a GPU, `float32` on one before
    Ampere, on a CPU as stored), `float32`, `bfloat16`, `float16` or `int8` (for a GPU: `bfloat16`,
    with the LM's weights in eight bits where one or two sessions speak)."""
    lm: str = LM_FILE
    """The file of the LM in a CosyVoice folder, which may have several: `llm.rl.pt` is the one of
    CosyVoice3 after reinforcement learning."""
    flow_backend: FlowBackend = "ours"
    """The runtime of the flow's estimator and the speaker encoder: `ours`, `tensorrt` (on a GPU) or
    `onnxruntime` (on a CPU)."""
    flow_engines: str = ""
    """The folder that keeps what other runtimes of the flow have built; if empty, the folder
    `engines` in the home."""
    kernels: KernelChoice = "auto"
    """The kernels of our own on a GPU: `auto` (tiles by its shared memory), `small` (tiles that fit
    GPUs with less of it than Hopper) or `off` (the plain networks, in CUDA graphs)."""
    threads: int = Field(default=0, ge=0, le=1024)
    """The number of CPU threads that torch uses; 0: as many as torch likes, in a worker one while
    other programs want the cores."""

    ray_min_workers: int = Field(default=1, ge=1)
    """The number of workers that a Ray cluster always has for this server."""
    ray_max_workers: int = Field(default=1, ge=1)
    """The most workers that a Ray cluster has for this server: while more than half of all slots
    are in use, there is one more."""
    ray_gpus: float = Field(default=1.0, ge=0)
    """The GPUs that a worker takes of a Ray node: 0.5 places two workers on each; with
    `--device cpu` it takes none."""

    llm_url: str = ""
    """The OpenAI-style LLM server that draws the speech tokens, with its `/v1`; if empty, a worker
    loads the LM and draws them itself."""
    llm_model: str = "cosyvoice2_llm"
    """The name that the LLM server has for the LM."""
    llm_prompt: PromptForm = "ids"
    """The form of the LLM server's prompts: `ids` (exact), `text` or `chat`."""
    llm_api_key: SecretStr = SecretStr("")
    """The key that the LLM server wants."""
    llm_temperature: Temperature = LLM_SAMPLING.temperature
    """The temperature that an LLM server samples with, unless a request has its own."""
    llm_top_p: float = Field(default=LLM_SAMPLING.top_p, gt=0, le=1)
    """The share of the probability that an LLM server samples from, unless a request has its
    own."""
    llm_top_k: int = Field(default=LLM_SAMPLING.top_k, ge=1)
    """The number of tokens that an LLM server samples from, unless a request has its own."""
    llm_repetition_penalty: float = Field(default=LLM_SAMPLING.repetition_penalty, gt=0)
    """The penalty of an LLM server on tokens that it has drawn before; 1 is none."""
    llm_max_tokens: int = Field(default=LLM_SAMPLING.max_tokens, ge=1)
    """The most speech tokens that an LLM server may draw for an utterance; 25 are a second."""
    llm_connect_seconds: float = Field(default=2.0, gt=0)
    """The longest time until an LLM server takes a connection."""
    llm_first_seconds: float = Field(default=10.0, gt=0)
    """The longest time until an LLM server's first token, further attempts included."""
    llm_between_seconds: float = Field(default=5.0, gt=0)
    """The longest time from one token of an LLM server to the next."""

    host: str = "127.0.0.1"
    """The address that the server listens on; set keys before you open it to a network."""
    port: int = Field(default=8080, ge=0, le=65535)
    """The port that the server listens on; 0 takes a free one."""
    api_keys: SecretStr = SecretStr("")
    """The keys, separated by commas, one of which clients must send; if empty, anybody may ask."""
    api_keys_file: str = ""
    """The file of further keys, a line `NAME=KEY` each; it is read again when it has changed, and
    the log names keys by these names."""
    ssl_certfile: str = ""
    """The file of the certificate, and of those behind it, with which the server speaks TLS; if
    empty, it doesn't."""
    ssl_keyfile: str = ""
    """The file of the certificate's private key; if empty, it is in the certificate's file."""
    trusted_proxies: str = "127.0.0.1"
    """The proxies whose word on a client's address is taken (`X-Forwarded-For`): addresses and
    networks, separated by commas; `*` is anybody."""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """The port that answers `/metrics` without a key, and nothing else; 0 has none."""
    otlp_traces_endpoint: str = ""
    """The collector that spans go to by OTLP over HTTP, as `http://HOST:4318/v1/traces`; if empty,
    there are no spans."""

    strict_fields: bool = False
    """What a field of a request is that nobody knows: 0, ignored and counted; 1, an error."""
    model_aliases: str = OPENAI_MODELS
    """The names, separated by commas, that mean the model besides its own and that of
    `--model`; `*` is any name."""
    voice_aliases: str = ""
    """The voices' further names, as `NAME=VOICE` separated by commas; they go before stored voices,
    and before the voices that OpenAI's names have."""
    lexicon: str = ""
    """The JSON file of words and how they are said, as `{"nginx": "engine x"}`, for all requests; a
    request's own lexicon goes before it."""
    reference_urls: bool = False
    """What becomes of a reference recording that is an http(s) URL: 0, it is refused; 1, it is
    fetched, unless it leads to an address that is not public."""
    require_consent: bool = False
    """What a recording in a request for speech needs: 0, nothing more; 1, a `consent`, as every
    voice does that is stored over HTTP."""

    watermark_key: SecretStr = SecretStr("")
    """The secret of the inaudible mark on speech with any voice but the model's own, of 16
    characters at least; if empty, there is no mark."""
    trim_leading_silence: bool = False
    """What becomes of the silence before speech, unless a request says it: 0, it stays; 1, all but
    20 ms of it is left out."""

    wyoming_port: int = Field(default=0, ge=0, le=65535)
    """The port for Home Assistant and other clients of the Wyoming protocol, which knows no keys;
    0 opens none."""
    legacy_port: int = Field(default=0, ge=0, le=65535)
    """The port for clients of the original's FastAPI runtime, there 50000; 0 opens none."""
    legacy_grpc_port: int = Field(default=0, ge=0, le=65535)
    """The port for clients of the original's gRPC runtime, there 50000; 0 opens none."""
    legacy_max_conc: int = Field(default=4, ge=1)
    """The number of calls that the port for gRPC serves at once; more are refused with
    RESOURCE_EXHAUSTED."""

    profile: ProfileName = ProfileName.LATENCY
    """What a GPU is tuned for: `latency` (few listeners who hear soon) or `throughput` (as many as
    it can serve)."""
    slots: int = Field(default=0, ge=0, le=4096)
    """The number of requests that a worker computes at once; 0 means 8 on a CPU, and on a GPU what
    the profile has, or half of it and so on until they fit."""
    gpu_memory: Annotated[str, AfterValidator(gpu_budget)] = ""
    """The memory that a worker may have of each of its GPUs: a share (`0.5`) or GiB (`12GiB`); if
    empty, all that is free."""
    waiting: int = Field(default=MAX_WAITING, ge=0)
    """The number of requests that may wait for a worker; more are refused with 429."""
    max_wait_seconds: float = Field(default=MAX_WAIT_SECONDS, gt=0)
    """The longest time that a request may have to wait for a worker, judged by the pace of those
    before it; a request that would wait longer is refused with 429."""
    voice_cache_bytes: int = Field(default=VOICE_CACHE_BYTES, ge=0)
    """The memory that each process has for voices; the least recently used ones are dropped
    first."""

    max_requests: int = Field(default=512, ge=1)
    """The number of requests inside the server at once; more are refused with 429."""
    max_requests_per_key: int = Field(default=512, ge=1)
    """The number of requests with the same key inside the server at once; more are refused with
    429."""
    max_requests_per_minute: int = Field(default=0, ge=0)
    """The number of texts that a key, or without keys an address, may ask for in a minute; more
    are refused with 429; 0 is any number."""
    max_characters_per_minute: int = Field(default=0, ge=0)
    """The number of characters that a key, or without keys an address, may ask for in a minute;
    more are refused with 429; 0 is any number."""
    max_connections: int = Field(default=1024, ge=1)
    """The number of WebSockets and Wyoming connections that are open at once, a quarter of them at
    most Wyoming's; more are refused with 429."""
    max_idle_seconds: float = Field(default=20.0, gt=0)
    """The longest time until a connection's first message, and from one piece of its text to the
    next; a body has as long, and a second more for each 16 KiB of it (131 kbit/s)."""
    max_body_bytes: int = Field(default=16 << 20, ge=1024)
    """The largest body of a request and the largest message of a WebSocket, recordings included;
    a larger one is refused with 413."""
    max_input_characters: int = Field(default=4096, ge=1)
    """The longest text of a request, in characters; a longer one is refused with 400."""
    max_request_seconds: float = Field(default=600.0, gt=0)
    """The longest time of a request, its client's slowness included; a longer one ends with 408 or
    504."""
    max_unread_bytes: int = Field(default=MAX_UNREAD_BYTES, ge=1024)
    """The most audio that waits for the client of a request to read it, 96000 bytes a second; a
    request of which more waits is ended with 408."""
    shutdown_seconds: float = Field(default=30.0, ge=0)
    """The time that running requests have left after SIGTERM."""

    _options: frozenset[str] = PrivateAttr(frozenset())

    @property
    def options(self) -> frozenset[str]:
        """The names of the settings that the command line gave."""
        return self._options

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: str) -> str:
        for place in filter(None, map(str.strip, value.split(","))):
            if value.strip() != "*":
                ip_network(place)
        return value

    @property
    def models(self) -> list[str]:
        """The models of a server."""
        names = (name.strip() for name in self.model.split(","))
        return list(dict.fromkeys(filter(None, names))) or [self.model]

    @property
    def voices(self) -> str:
        """The folder or the URL that keeps voices."""
        return self.voice_store or str(self.home / "voices")

    @property
    def engines(self) -> str:
        """The folder that keeps what other runtimes of the flow have built."""
        return self.flow_engines or str(self.home / "engines")

    @property
    def keys(self) -> list[str]:
        return list(filter(None, map(str.strip, self.api_keys.get_secret_value().split(","))))

    @property
    def voice_names(self) -> dict[str, str]:
        """The voices by their further names."""
        return _pairs(self.voice_aliases)

    @field_validator("voice_aliases")
    @classmethod
    def _are_pairs(cls, value: str) -> str:
        _pairs(value)
        return value

    @classmethod
    def read(cls, **options: Any) -> Settings:
        """The settings of the environment, with the options of a command line before it.

        An option that is None or empty was not given. A value that makes no sense is one error,
        which names the option or the variable.
        """
        options = {name: value for name, value in options.items() if value not in (None, "")}
        try:
            settings = cls(**options)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            place = option_name(name) if name in options else variable(name)
            reason = first["msg"].removeprefix("Value error, ")  # pydantic's words
            raise InputError(f"{place}: {reason}") from error
        settings._options = frozenset(options)
        return settings


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if not all(name.strip() and voice.strip() for name, _, voice in pairs):
        raise ValueError("give pairs like alloy=ada,nova=bob")
    return {name.strip(): voice.strip() for name, _, voice in pairs}


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{name}".upper()


def option_name(name: str) -> str:
    """The command-line option of a setting."""
    return f"--{name.replace('_', '-')}"

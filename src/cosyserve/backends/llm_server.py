"""Where an OpenAI-style LLM server is, and how it is asked. It needs no HTTP library."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cosyserve.backends.vocabulary import COSYVOICE2, Vocabulary
from cosyserve.choices import LLMSampling, PromptForm
from cosyserve.errors import InputError


@dataclass(frozen=True)
class LLMServer:
    """Where the server is, and which requests it understands."""

    url: str  # with OpenAI's /v1
    model: str  # the name it serves the LM under
    api_key: str = field(default="", repr=False)
    prompt: PromptForm = "ids"
    """Ids and text go to /completions. Ids are exact; text is tokenised again by the server."""
    extensions: bool = True
    """Whether it knows top_k, min_tokens and repetition_penalty, which OpenAI's API lacks."""
    sampling: LLMSampling = field(default_factory=LLMSampling)
    connect_seconds: float = 2.0
    first_seconds: float = 10.0  # until the first token, further attempts included
    between_seconds: float = 5.0  # from one token to the next
    vocabulary: Vocabulary = COSYVOICE2

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")) or not _has_host(self.url):
            raise InputError(
                f"llm_url {self.url!r:.80} is no URL of an LLM server, e.g. "
                "http://localhost:8000/v1"
            )
        if min(self.connect_seconds, self.first_seconds, self.between_seconds) <= 0:
            raise InputError("the time limits of an LLM server must be more than 0 s")


def _has_host(url: str) -> bool:
    """Whether it names a host, and a port that there may be if any."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False

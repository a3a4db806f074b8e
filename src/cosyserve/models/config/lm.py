"""The sizes of a speech LM, and its ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from cosyserve.models.config.checks import require

LMKind = Literal["cosyvoice2", "cosyvoice3"]


class ControlIds(NamedTuple):
    """How many of them are classes and how many have rows in the table, and where each stands,
    counted behind the speech tokens."""

    classes: int
    rows: int
    sos: int
    eos: int
    task: int
    fill: int


# CosyVoice2 has start and task in a table of their own; CosyVoice3 has them among its classes.
CONTROL_IDS: dict[LMKind, ControlIds] = {
    "cosyvoice2": ControlIds(classes=3, rows=5, sos=3, eos=0, task=4, fill=2),
    "cosyvoice3": ControlIds(classes=200, rows=200, sos=0, eos=1, task=2, fill=3),
}
PREAMBLE = "You are a helpful assistant."
SILENT = frozenset({1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323})


@dataclass(frozen=True)
class LMConfig:
    """Qwen2 over one table of ids: text, speech tokens, control ids."""

    hidden: int = 896
    intermediate: int = 4864
    layers: int = 24
    heads: int = 14
    kv_heads: int = 2
    text_vocab: int = 151_936
    speech_tokens: int = 6561
    norm_eps: float = 1e-6
    rope_theta: float = 1e6
    speech_per_text: tuple[float, ...] = (2.0, 20.0)  # tokens, at least and at most
    pause: float = 0.0  # seconds of silence behind an utterance: some end with their last sound
    takes_pieces: bool = True  # whether it has learnt to speak while its text still arrives
    kind: LMKind = "cosyvoice2"

    def __post_init__(self) -> None:
        require(len(self.speech_per_text) == 2, "speech_per_text needs two numbers")
        require(0 <= self.pause <= 2, "pause is not between 0 and 2 seconds")
        require(self.hidden % (2 * self.heads) == 0, "hidden is no even number per head")
        require(self.heads % self.kv_heads == 0, "heads don't divide into key-value heads")

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def preamble(self) -> str:
        """What every prompt begins with, up to <|endofprompt|>; "": no prompt needs that."""
        return PREAMBLE if self.kind == "cosyvoice3" else ""

    @property
    def silent(self) -> frozenset[int]:
        """Speech tokens of silence, of which only a few in a row are spoken."""
        return SILENT if self.kind == "cosyvoice3" else frozenset()

    @property
    def classes(self) -> int:
        """Speech tokens, then ids that end or interrupt the speech."""
        return self.speech_tokens + self._ids.classes

    @property
    def control(self) -> range:
        """The classes that are no speech."""
        return range(self.speech_tokens, self.classes)

    @property
    def eos(self) -> int:
        return self.speech_tokens + self._ids.eos

    @property
    def stops(self) -> range:
        """The classes that end the speech of a whole text; other control ids are never drawn."""
        return self.control if self.kind == "cosyvoice3" else range(self.eos, self.eos + 1)

    @property
    def fill(self) -> int:
        """Says 'give me more text' when text arrives piece by piece."""
        return self.speech_tokens + self._ids.fill

    @property
    def sos(self) -> int:
        return self.text_vocab + self.speech_tokens + self._ids.sos

    @property
    def task(self) -> int:
        return self.text_vocab + self.speech_tokens + self._ids.task

    @property
    def vocab(self) -> int:
        return self.text_vocab + self.speech_tokens + self._ids.rows

    @property
    def _ids(self) -> ControlIds:
        return CONTROL_IDS[self.kind]

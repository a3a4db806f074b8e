"""Preset voices: the mean direction of a voice, and the utterance that leads the LM best.

The LM hears the utterance before it speaks, so that it knows accent and pace; so does the flow, so
that it knows the voice. Knows no training.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from cosyserve.contracts import Voice
from cosyserve.models.config import ModelConfig
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.text import TextTokenizer, spoken_text
from training.lm import loss_of

SHORTEST, LONGEST = 55, 63  # tokens of a leading utterance: a first chunk then has 12 to 20
CANDIDATES, TRIALS = 12, 8
LANGUAGES = {"a": "en-US", "b": "en-GB", "k": "en-US"}


class Arrays:
    """What the recipes left in the working folder."""

    def __init__(self, work: Path) -> None:
        file = work / "arrays" / "meta.json"
        self.utterances: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
        codes = torch.load(work / "codes.pt", weights_only=True).tolist()
        ends = np.cumsum([0, *(u["tokens"] for u in self.utterances)]).tolist()
        self.spans = list(pairwise(ends))
        self.codes = [codes[a:b] for a, b in self.spans]
        self.embeddings = torch.load(work / "embeddings.pt", weights_only=True).float()
        self._mel = np.load(work / "arrays" / "mel.npy", mmap_mode="r")

    def mel(self, number: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        first, end = self.spans[number]
        return np.asarray(self._mel[2 * first : 2 * end], np.float32)

    def of(self, voice: str) -> list[int]:
        return [i for i, u in enumerate(self.utterances) if u["voice"] == voice]


@torch.inference_mode()
def best_lead(lm: SpeechLM, tokenizer: TextTokenizer, arrays: Arrays, mine: list[int]) -> int:
    """The utterance after which the LM finds others of the same voice likeliest."""
    config, draw = lm.config, random.Random(0)
    fitting = [i for i in mine if SHORTEST <= arrays.utterances[i]["tokens"] <= LONGEST]
    leads = draw.sample(fitting, min(CANDIDATES, len(fitting) // 2))
    others = [i for i in fitting if i not in leads]
    trials = draw.sample(others, min(TRIALS, len(others)))
    losses = []
    for lead in leads:
        rows = []
        for trial in trials:
            words = [
                word
                for i in (lead, trial)
                for word in tokenizer.encode(spoken_text(arrays.utterances[i]["text"]))
            ]
            speech = [*arrays.codes[lead], *arrays.codes[trial], config.eos]
            row = [config.sos, *words, config.task, *(config.text_vocab + code for code in speech)]
            rows.append(torch.tensor(row))
        table = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
        losses.append(float(loss_of(lm, table, misheard=0.0)[0]))
    return leads[int(np.argmin(losses))]


def voices(
    lm: SpeechLM, tokenizer: TextTokenizer, arrays: Arrays, config: ModelConfig
) -> dict[str, Voice]:
    found = {}
    for name in sorted({u["voice"] for u in arrays.utterances}):
        mine = arrays.of(name)
        lead = best_lead(lm, tokenizer, arrays, mine)
        found[name] = Voice(
            arrays.utterances[lead]["text"],
            np.array(arrays.codes[lead], np.int32),
            arrays.mel(lead),
            F.normalize(arrays.embeddings[mine]).mean(0).numpy(),
            name=name,
            language=LANGUAGES.get(name[0], "en"),
            family=config.family,
            fingerprint=config.fingerprint,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    return found

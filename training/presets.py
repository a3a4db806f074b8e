"""Preset voices: the mean direction of a voice, and the utterance that leads the LM best.

The LM hears the utterance before it speaks, so that it knows accent and pace; so does the flow, if
the voice is the same, so that it knows the voice. Knows no training.
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
from cosyserve.models.lm import SpeechLM
from cosyserve.text import TextTokenizer, spoken_text
from training.lm import loss_of

SHORTEST, LONGEST = 50, 90  # tokens of a leading utterance
CANDIDATES, TRIALS = 12, 8
LEADS = {  # utterances after which fewer words were misheard than after the likeliest one
    "af_heart": "en06285",
    "af_kore": "en05380",
    "af_nova": "en01833",
    "am_eric": "en01402",
    "am_puck": "en00640",
    "bf_emma": "en02234",
    "bm_george": "en05782",
}
LED_BY = {"kathleen": "af_kore"}  # no phoneme labels: the LM does not follow her own utterances
UNCLEAR = ("af_bella", "am_fenrir")  # voices that came out harder to understand than the others
LANGUAGES = {"a": "en-US", "b": "en-GB", "k": "en-US"}


class Arrays:
    """What the recipes left in the working folder."""

    def __init__(self, work: Path) -> None:
        meta = json.loads((work / "arrays" / "meta.json").read_text("utf-8"))
        self.utterances: list[dict[str, Any]] = meta["utterances"]
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

    def number(self, id: str) -> int:
        return next(i for i, u in enumerate(self.utterances) if u["id"] == id)


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
    for name in sorted({u["voice"] for u in arrays.utterances} - set(UNCLEAR)):
        mine, leader = arrays.of(name), LED_BY.get(name, name)
        if leader in LEADS:
            lead = arrays.number(LEADS[leader])
        else:
            lead = best_lead(lm, tokenizer, arrays, arrays.of(leader))
        tokens = np.array(arrays.codes[lead], np.int32)
        own = arrays.utterances[lead]["voice"] == name
        found[name] = Voice(
            arrays.utterances[lead]["text"],
            tokens,
            arrays.mel(lead),
            F.normalize(arrays.embeddings[mine]).mean(0).numpy(),
            flow_start=0 if own else len(tokens),
            name=name,
            language=LANGUAGES.get(name[0], "en"),
            family=config.family,
            fingerprint=config.fingerprint,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    return found

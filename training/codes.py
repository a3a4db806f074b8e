"""What a speech code says: one mark, where it stands in the 40 ms, and its pitch or its end.

A code is seven ternary digits. Four name the mark; marks that sound alike differ in few of them.
One says whether the mark fills the token. Two say how high a voiced mark is, or how long an
unvoiced one will go on, so that pauses end by themselves. Knows no network.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from training.data import MARKS, PAUSE, SILENCE, STRESS, UNKNOWN, Corpus

VOICELESS = 10  # so many marks come first that have no pitch, silence among them
MARK_DIGITS = 4
PLACES, LEVELS = 3, 9
WHOLE, AFTER_LAST, BEFORE_NEXT = range(PLACES)  # the other half belongs to the mark beside
PITCH_STEP = 1 / 7  # octaves from level to level; the middle one is the voice's median
LONGEST_OF_LEVEL = (1, 2, 3, 4, 5, 7, 10, 14)  # tokens that an unvoiced mark goes on, this included
TAKES = 8  # of every utterance, for LM and tokenizer
PACES = (0.85, 1.15)
LATEST = 0.5  # tokens that a take begins later: no more than is silent in front
FRAMES = 4  # of the tokenizer's input in a token


def _gray(digits: int) -> list[int]:
    """Numbers of ternary digits, each one digit by one from the last."""
    found = [0]
    for digit in range(digits):
        found = [
            value + 3**digit * high
            for high in range(3)
            for value in (reversed(found) if high % 2 else found)
        ]
    return found


GRAY = torch.tensor(_gray(MARK_DIGITS))  # a level's two digits are the first nine of these
UNGRAY = GRAY.argsort()


def joined(mark: Tensor, place: Tensor, level: Tensor) -> Tensor:
    return GRAY[mark] + 3**MARK_DIGITS * (place + PLACES * GRAY[level])


def parted(codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """mark, place, level"""
    above = codes // 3**MARK_DIGITS
    return UNGRAY[codes % 3**MARK_DIGITS], above % PLACES, UNGRAY[above // PLACES]


def digits(codes: Tensor, count: int) -> Tensor:
    """[...] -> [..., count] of -1, 0, 1, as the tokenizer's dimensions are rounded."""
    places = 3 ** torch.arange(count, device=codes.device)
    return codes[..., None] // places % 3 - 1


def placed(run: Tensor) -> tuple[Tensor, Tensor]:
    """Which mark, counted on, sounds in every 20 ms [U, 2L] -> the token's mark, place [U, L].

    A token goes on by one mark at most, so that no mark is lost that is shorter than a token.
    """
    first, second = run[:, ::2], run[:, 1::2]
    latest = run[:, :1] + torch.arange(first.shape[1])
    chosen = latest + (second - latest).clamp(max=0).cummin(1).values
    place = torch.where(chosen < second, BEFORE_NEXT, AFTER_LAST)
    return chosen, torch.where((first == second) & (chosen == first), WHOLE, place)


def spelled(mark: Tensor, place: Tensor, octave: Tensor) -> Tensor:
    """[U, L] each, octave above the voice's median -> codes [U, L], UNKNOWN where the mark is."""
    high = (octave / PITCH_STEP).round().long() + LEVELS // 2
    level = torch.where(mark < VOICELESS, ends(mark), high.clamp(0, LEVELS - 1))
    return torch.where(mark == UNKNOWN, UNKNOWN, joined(mark.clamp(min=0), place, level))


def ends(mark: Tensor) -> Tensor:
    """The level that says how long each mark will go on [U, L]."""
    going_on = torch.ones_like(mark)
    for t in range(mark.shape[1] - 2, -1, -1):
        same = mark[:, t] == mark[:, t + 1]
        going_on[:, t] = torch.where(same, going_on[:, t + 1] + 1, 1)
    return torch.bucketize(going_on, torch.tensor(LONGEST_OF_LEVEL))


def separated(phonemes: str, codes: list[int]) -> list[int]:
    """With a token of silence where a word ends and the next begins with the same sound: a long
    sound is all that codes say of the two, and listeners hear one ("bus top", "our ode").

    Codes that do not say these phonemes are left as they are."""
    said, meets = meetings(phonemes)
    if not any(meets):
        return codes
    mark, place, level = parted(torch.tensor(codes))
    values, counts = mark.unique_consecutive(return_counts=True)
    stops = counts.cumsum(0).tolist()
    spans = list(zip(values.tolist(), [0, *stops[:-1]], stops, strict=True))
    sounds = [span for span in spans if MARKS[span[0]] != SILENCE]
    if [MARKS[value] for value, _, _ in sounds] != said:
        return codes
    order: list[int] = []  # of the tokens; the last one, once more, is the silence
    rest = 0
    for (_, start, stop), meeting in zip(sounds, meets, strict=True):
        if meeting:
            middle = (start + stop) // 2
            order += [*range(rest, max(middle, start + 1)), len(codes)]
            rest = middle
    order += range(rest, len(codes))
    mark, place, level = (F.pad(row, (0, 1))[order] for row in (mark, place, level))
    level = torch.where(mark < VOICELESS, ends(mark[None])[0], level)
    return joined(mark, place, level).tolist()


def meetings(phonemes: str) -> tuple[list[str], list[bool]]:
    """Marks without stress and pauses, and which of them end a word and begin the next one."""
    said: list[str] = []
    meets: list[bool] = []
    gap = ""
    for mark in phonemes:
        if mark in PAUSE:
            gap += mark
        elif mark not in STRESS:
            if said and said[-1] == mark and not gap.strip():
                meets[-1] |= bool(gap)
            else:
                said.append(mark)
                meets.append(False)
            gap = ""
    return said, meets


def octaves(corpus: Corpus) -> Tensor:
    """[frames] above the median of the voice, a straight line where no pitch is heard."""
    f0 = corpus["f0"].float().cpu().numpy()
    heard = f0 > 0
    octave = np.log2(np.maximum(f0, 1.0))
    voice = corpus.voice_of_tokens()
    border = torch.searchsorted(voice, torch.arange(len(corpus.voices) + 1, device=voice.device))
    for first, end in pairwise((2 * border).tolist()):
        known = octave[first:end][heard[first:end]]
        octave[first:end] -= np.median(known) if len(known) else 0.0
    for first, end in pairwise((2 * corpus.start).tolist()):
        at = np.flatnonzero(heard[first:end])
        known = octave[first:end][at] if len(at) else [0.0]
        octave[first:end] = np.interp(np.arange(end - first), at if len(at) else [0], known)
    return torch.from_numpy(octave)


@dataclass
class Take:
    """The corpus spoken once more, a little later and faster or slower."""

    codes: Tensor  # [T]
    lengths: Tensor  # [U]
    source: Tensor  # [T] frames of the tokenizer's input, where the token begins
    pace: Tensor  # [T]


def take(corpus: Corpus, octave: Tensor, paces: Sequence[float], later: Sequence[float]) -> Take:
    """`paces` of every utterance, and how much `later` (in tokens) it begins."""
    phone = corpus["phone"].cpu().long()
    marks, run = phone.unique_consecutive(return_inverse=True)
    runs, heights, sources, speeds = [], [], [], []
    for (first, end), pace, skipped in zip(
        pairwise(corpus.start.tolist()), paces, later, strict=True
    ):
        tokens = int((end - first - skipped) / pace)
        at = first + skipped + pace * (torch.arange(2 * tokens, dtype=torch.float64) / 2 + 0.25)
        rows = (2 * at).long()
        runs.append(run[rows])
        heights.append(octave[rows].view(-1, 2).mean(1))
        sources.append(FRAMES * (first + skipped + pace * torch.arange(tokens)).double())
        speeds.append(torch.full((tokens,), pace))
    lengths = torch.tensor([len(row) for row in heights])
    number, place = placed(pad_sequence(runs, batch_first=True))
    within = torch.arange(number.shape[1]) < lengths[:, None]
    mark = torch.where(within, marks[number.clamp(min=0)], UNKNOWN)
    codes = spelled(mark, place, pad_sequence(heights, batch_first=True))
    return Take(codes[within], lengths, torch.cat(sources), torch.cat(speeds))


def any_take(corpus: Corpus, octave: Tensor) -> Take:
    """Every utterance at some pace, from some moment."""
    count = len(corpus.utterances)
    paces = [random.uniform(*PACES) for _ in range(count)]
    return take(corpus, octave, paces, [LATEST * random.random() for _ in range(count)])


def takes(corpus: Corpus) -> list[Take]:
    """The first is the original."""
    octave, count = octaves(corpus), len(corpus.utterances)
    original = take(corpus, octave, [1.0] * count, [0.0] * count)
    return [original, *(any_take(corpus, octave) for _ in range(TAKES - 1))]

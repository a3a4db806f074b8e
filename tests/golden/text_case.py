"""Compares the text front end with strings that the original front end gave.

Two questions: with every fix switched off, is each result the original's? And where does the
default front end differ on purpose, by which fixes?
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cosyserve.contracts import Mode, SpeechRequest, Voice
from cosyserve.engine.scheduling.lm_requests import prompt
from cosyserve.models.config import LMConfig
from cosyserve.text import (
    COSYVOICE3_TOKENS,
    END_OF_PROMPT,
    Fix,
    Fixes,
    TextTokenizer,
    segments,
    spoken_text,
)
from cosyserve.text.language import Language
from cosyserve.text.numbers import Reader, read_numbers
from cosyserve.text.split import DEFAULT_LIMITS, Length, SegmentLimits, split

FAITHFUL: Fixes = frozenset()
DEFAULT_FIELDS = ("segments_wetext", "normalized_wetext")  # what the default front end answers
_SHOWN = 60  # characters of a string in a report


class Difference(NamedTuple):
    text: str
    field: str
    golden: Any
    ours: Any
    fixes: tuple[Fix, ...] = ()

    def __str__(self) -> str:
        """Golden and ours around the first character that differs."""
        golden, ours = _shown(self.golden), _shown(self.ours)
        pairs = enumerate(zip(golden, ours, strict=False))
        start = max(0, next((i for i, (a, b) in pairs if a != b), 0) - _SHOWN // 3)
        end = start + _SHOWN
        return f"{golden[start:end]!r} -> {ours[start:end]!r}"


class TokensNeededError(Exception):
    """The result depends on how many tokens a text has."""


SMALL = SegmentLimits(30, 20, 5)


def length_without_tokenizer(text: str) -> int:
    """No text has more tokens than bytes; below the shortest segment nothing else matters."""
    if (most := len(text.encode())) > DEFAULT_LIMITS.shortest:
        raise TokensNeededError
    return most


def _as_written(text: str, language: Language) -> str:
    return text


def _normalised(text: str, read: Reader, fixes: Fixes) -> str:
    # The original splits even when only the text is asked for, and fails when splitting fails.
    list(segments(text, len, read=read, fixes=fixes))
    return spoken_text(text, read=read, fixes=fixes)


def _fields(length: Length, fixes: Fixes) -> dict[str, Callable[[str], Any]]:
    return {
        "segments_none": lambda t: list(segments(t, length, read=_as_written, fixes=fixes)),
        "normalized_none": lambda t: _normalised(t, _as_written, fixes),
        "segments_wetext": lambda t: list(segments(t, length, fixes=fixes)),
        "normalized_wetext": lambda t: _normalised(t, read_numbers, fixes),
        "split_zh": lambda t: list(split([t], wide=True, length=len, fixes=fixes)),
        "split_en": lambda t: list(split([t], wide=False, length=length, fixes=fixes)),
        "split_zh_comma_30_20_5": lambda t: list(
            split([t], wide=True, length=len, limits=SMALL, at_commas=True, fixes=fixes)
        ),
    }


def _result(function: Callable[[str], Any], text: str) -> Any:
    try:
        return function(text)
    except TokensNeededError:
        return TokensNeededError
    except Exception as error:
        return {"error": type(error).__name__}


def _items(path: Path) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["items"]
    return items


def verify_text(path: Path, length: Length) -> tuple[int, int, list[Difference]]:
    """Fields compared, fields that need tokens, and where the faithful front end differs."""
    fields = _fields(length, FAITHFUL)
    results = [
        Difference(item["text"], field, golden, _result(fields[field], item["text"]))
        for item in _items(path)
        for field, golden in item.items()
        if field != "text"
    ]
    compared = [result for result in results if result.ours is not TokensNeededError]
    mistakes = [result for result in compared if result.ours != result.golden]
    return len(compared), len(results) - len(compared), mistakes


def fixed_text(path: Path, length: Length) -> list[Difference]:
    """The strings that the default front end speaks differently, with the fixes that do it."""
    fixes = list(Fix)
    stages = [_fields(length, frozenset(fixes[:n])) for n in range(len(fixes) + 1)]
    differences = []
    for item in _items(path):
        for field in DEFAULT_FIELDS:
            results = [_result(stage[field], item["text"]) for stage in stages]
            if TokensNeededError not in results and results[-1] != item[field]:
                # Fixes are added one after another; those that change the result have fired.
                pairs = zip(fixes, results, results[1:], strict=False)
                fired = tuple(fix for fix, before, after in pairs if before != after)
                differences.append(Difference(item["text"], field, item[field], results[-1], fired))
                break
    return differences


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"fails with {value['error']}"
    return " | ".join(value) or f"{len(value)} segments" if isinstance(value, list) else str(value)


def _qwen2(folder: Path) -> TextTokenizer:
    return TextTokenizer.from_vocabulary(folder / "vocab.json", folder / "merges.txt")


def text_result(path: Path, tokenizer: Path | None) -> tuple[str, str]:
    """Status and detail of the comparison; prints a line for each string changed on purpose."""
    length = _qwen2(tokenizer).length if tokenizer else length_without_tokenizer
    compared, unknown, mistakes = verify_text(path, length)
    if mistakes:
        for mistake in mistakes:
            print(f"    {mistake.field} of {mistake.text[:_SHOWN]!r}: {mistake}")
        return "FAIL", f"{len(mistakes)} of {compared} fields differ"
    changes = fixed_text(path, length)
    for change in changes:
        print(f"    {', '.join(fix.name for fix in change.fixes)}: {change}")
    detail = f"{compared} fields equal, {len(changes)} strings fixed by default"
    return "ok", detail + (f", {unknown} fields need --tokenizer" if unknown else "")


def tokenizer_result(path: Path, tokenizer: Path) -> tuple[str, str]:
    """Status and detail of the comparison of ids and decoded texts."""
    qwen2 = _qwen2(tokenizer)
    golden = json.loads(path.read_text(encoding="utf-8"))
    wrong = [token for token, ids in golden["special"].items() if qwen2.encode(token) != ids]
    wrong += [
        item["text"]
        for item in golden["items"]
        if qwen2.encode(item["text"]) != item["ids"] or qwen2.decode(item["ids"]) != item["decode"]
    ]
    if wrong:
        return "FAIL", f"{len(wrong)} texts, first {wrong[0][:40]!r}"
    return "ok", f"{len(golden['items'])} texts and {len(golden['special'])} special tokens equal"


def cosyvoice3_result(path: Path, tokenizer: Path | None) -> tuple[str, str]:
    """Status and detail of the comparison of special tokens and, with a vocabulary, of ids, decoded
    texts and prompts."""
    golden = json.loads(path.read_text(encoding="utf-8"))
    first = next(iter(golden["special"].values()))[0]
    numbered = {token: [first + n] for n, token in enumerate(COSYVOICE3_TOKENS)}
    if numbered != golden["special"] or golden["length"] != first + len(COSYVOICE3_TOKENS):
        return "FAIL", "the special tokens differ"
    if tokenizer is None:
        return "ok", f"{len(numbered)} special tokens equal; texts need --tokenizer"
    files = tokenizer / "vocab.json", tokenizer / "merges.txt"
    qwen2 = TextTokenizer.from_vocabulary(*files, COSYVOICE3_TOKENS)
    spoken = [item for item in golden["items"] if "error" not in item]
    wrong = [
        item["text"]
        for item in spoken
        if qwen2.encode(item["text"]) != item["ids"] or qwen2.decode(item["ids"]) != item["decode"]
    ]
    wrong += [item["tts_text"] for item in golden["prompts"] if not _same_prompt(item, qwen2)]
    if wrong:
        return "FAIL", f"{len(wrong)} texts, first {wrong[0][:40]!r}"
    return (
        "ok",
        f"{len(spoken)} texts, {len(golden['prompts'])} prompts, {len(numbered)} tokens equal",
    )


def _same_prompt(item: dict[str, Any], tokenizer: TextTokenizer) -> bool:
    """Whether the LM is led by the original's ids; with what a prompt lacks that its writer has
    forgotten. The text of a segment is as the original splits it."""
    mode = Mode({"instruct2": "instruct"}.get(item["mode"], item["mode"]))
    transcript = item["prompt_text"] or "" if mode is Mode.ZERO_SHOT else ""
    nobody = np.zeros(192, np.float32)
    voice = Voice(transcript, np.zeros(1, np.int32), np.zeros((2, 80), np.float32), nobody)
    instruction = item["prompt_text"] or "" if mode is Mode.INSTRUCT else ""
    lm = LMConfig(kind="cosyvoice3")
    for segment in item["segments"]:
        request = SpeechRequest(segment["text"], voice, mode, instruction)
        led = prompt(request, lm, tokenizer, segment["text"], lambda text, language: text)
        golden = [*item["lm_prompt_text_ids"]]
        if instruction and not instruction.startswith(lm.preamble):
            golden = [*tokenizer.encode(f"{lm.preamble} "), *golden]
            golden += [] if instruction.endswith(END_OF_PROMPT) else tokenizer.encode(END_OF_PROMPT)
        elif segment["asserts"]:
            golden = [*tokenizer.encode(lm.preamble + END_OF_PROMPT), *golden]
        golden += segment["text_ids"]
        ours = [*led.prefix, *led.text, *tokenizer.encode(segment["text"])]
        if ours != golden or bool(led.speech) != item["lm_prompt_speech"]:
            return False
    return True

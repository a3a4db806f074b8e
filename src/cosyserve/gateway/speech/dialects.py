"""What other speech servers call our fields, and which of their fields we know but don't have.

vLLM-Omni and SGLang-Omni have `speaker`, `ref_audio` and languages by their English names;
Kokoro-FastAPI has one letter for a language. To all of them, null is a field that was not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cosyserve.gateway.errors import invalid_value

NAMES = {
    "speaker": "voice",
    "ref_audio": "reference_audio",
    "ref_text": "reference_text",
    "suppress_bootstrap_silence": "trim_leading_silence",
}
LANGUAGES = {
    "auto": "",
    "chinese": "zh",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "japanese": "ja",
    "korean": "ko",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
}
LETTERS = {  # Kokoro's, in the field `lang_code`
    "a": "en",
    "b": "en",
    "e": "es",
    "f": "fr",
    "h": "hi",
    "i": "it",
    "j": "ja",
    "p": "pt",
    "z": "zh",
}

# Without these, a request would be spoken by somebody else or lack what its client waits for.
IMPOSSIBLE = {
    "speaker_embedding": "a voice can't be sent as an embedding: send a recording (ref_audio)",
    "ref_audio_2": "there is one speaker in a request: leave it out",
    "word_timestamps": "ask for times of words with timestamps: 'word' over SSE or our WebSocket",
}

FOREIGN = frozenset({*NAMES, *IMPOSSIBLE, "lang_code", "language"})

# Harmless where they have no meaning. Counted by their names; all others are counted as one.
IGNORED = frozenset(
    {
        "ambient_sound",
        "download_format",
        "duration_seconds",
        "duration_tokens",
        "extra_params",
        "initial_codec_chunk_frames",
        "min_p",
        "non_streaming_mode",
        "normalization_options",
        "repetition_penalty",
        "return_download_link",
        "return_timestamps",
        "stage_params",
        "stream_codec_output",
        "token_count",
        "user",
        "volume_multiplier",
    }
)
OTHER = "other"


def translate(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields under our names, those that are null left out."""
    ours = {name: value for name, value in fields.items() if value is not None}
    if not FOREIGN.isdisjoint(ours):
        _take_foreign(ours)
    voice = ours.get("voice")
    if isinstance(voice, dict) and "id" in voice:
        ours["voice"] = voice["id"]
    return ours


def labels(unknown: Iterable[str]) -> Iterator[str]:
    """The names under which unknown fields are counted: few, whatever clients send."""
    return (name if name in IGNORED else OTHER for name in unknown)


def _take_foreign(fields: dict[str, Any]) -> None:
    for name in IMPOSSIBLE.keys() & fields.keys():
        if fields[name]:
            raise invalid_value(IMPOSSIBLE[name], [name])
    for theirs in NAMES.keys() & fields.keys():
        _rename(fields, theirs, NAMES[theirs])
    if isinstance(letter := fields.get("lang_code"), str):
        fields["lang_code"] = LETTERS.get(letter, letter)
        _rename(fields, "lang_code", "language")
    if isinstance(language := fields.get("language"), str):
        fields["language"] = LANGUAGES.get(language.lower(), language)


def _rename(fields: dict[str, Any], theirs: str, ours: str) -> None:
    value = fields.pop(theirs)
    if fields.setdefault(ours, value) != value:
        raise invalid_value(f"'{ours}' says something else: send one of them", [theirs])

"""Whether a voice fits a model, and what it is learned anew from if it does not. It imports no
torch, so that a gateway may check, too."""

from __future__ import annotations

from cosyserve.contracts import (
    MAX_PROMPT_SECONDS,
    TOKENS_PER_SECOND,
    Recording,
    Voice,
    VoiceFormat,
)
from cosyserve.errors import VoiceError


def check_fits(voice: Voice, model: VoiceFormat) -> None:
    """A voice made by other weights, or of too long a recording, is an error that says so."""
    if voice.family != model.family:
        raise VoiceError(
            f"voice '{voice.name}' is of family '{voice.family}', the model is '{model.family}', "
            "whose speech tokens and mel are others: add it again from its recording"
        )
    ours, theirs = model.fingerprint, voice.fingerprint
    if ours and theirs and ours != theirs:
        raise VoiceError(
            f"voice '{voice.name}' was made by another model (fingerprint {theirs}, this one has "
            f"{ours}): add it again from its recording"
        )
    embedding, mel = len(voice.embedding), voice.mel.shape[1]
    if model.embedding not in (0, embedding) or model.mel not in (0, mel):
        raise VoiceError(
            f"voice '{voice.name}' has an embedding of {embedding} and {mel} mel bins, the model "
            f"wants {model.embedding} and {model.mel}"
        )
    limit = model.speech_tokens
    if limit and voice.speech_tokens.size and int(voice.speech_tokens.max()) >= limit:
        raise VoiceError(f"voice '{voice.name}' has tokens above {limit - 1}")
    seconds = len(voice.speech_tokens) / TOKENS_PER_SECOND
    if seconds > MAX_PROMPT_SECONDS:
        raise VoiceError(
            f"voice '{voice.name}' has a prompt of {seconds:.1f} s, of at most "
            f"{MAX_PROMPT_SECONDS:.0f}: add it again from a shorter recording"
        )


def recording_of(voice: Voice) -> Recording | None:
    """The recording that a voice was learned from, if it has kept it."""
    if voice.source is None:
        return None
    texts = voice.prompt_text, voice.name, voice.language, voice.consent
    return Recording(voice.source, voice.source_rate, *texts)

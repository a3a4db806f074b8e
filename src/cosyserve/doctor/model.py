"""A model folder: its parts, its voices, what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosyserve.doctor.finding import Finding
from cosyserve.errors import CosyError

if TYPE_CHECKING:
    from cosyserve.checkpoints.parts import Parts


def model_parts(name: str) -> list[Finding]:
    """Of the model that a name or a folder stands for."""
    from cosyserve.checkpoints import published, testmodel
    from cosyserve.checkpoints.load import model_folder
    from cosyserve.checkpoints.parts import MODULES

    if name == testmodel.NAME:
        advice = (
            "`test` has random weights and does not speak: get FunAudioLLM/CosyVoice2-0.5B and "
            "pass it with --model, or run `cosyserve prepare FunAudioLLM/CosyVoice2-0.5B --out DIR`"
        )
        return [Finding("model", "test (random weights, not speech)", None, advice)]
    try:
        parts = published.read(model_folder(name))
    except CosyError as error:
        return [Finding("model", name, False, str(error))]
    findings = [Finding("model", f"{name}: {parts.config.name}", True)]
    for part in MODULES:
        kind = "torch" if part in parts.states else "onnxruntime" if part in parts.onnx else ""
        size = sum(t.numel() * t.element_size() for t in parts.states.get(part, {}).values())
        detail = f"{kind}, {size / 2**20:.0f} MiB" if size else kind or "not in the folder"
        advice = _ADVICE[part].format(tokenizer=_TOKENIZERS.get(parts.config.family, TOKENIZER))
        findings.append(Finding(part, detail, bool(kind), "" if kind else advice))
    return [*findings, _voices(parts)]


def _voices(parts: Parts) -> Finding:
    from cosyserve.voices.library import NO_VOICE
    from cosyserve.voices.shipped import named_voices

    try:
        names = ", ".join(named_voices(parts))
    except CosyError as error:
        return Finding("voices", "can't be read", False, str(error))
    return Finding("voices", names or "none shipped", None, "" if names else NO_VOICE)


TOKENIZER = "speech_tokenizer_v2.onnx"
_TOKENIZERS = {"cosyvoice3": "speech_tokenizer_v3.onnx"}  # by family, where it is another
_JOIN = "join another folder's with `cosyserve prepare DIR OTHER_DIR --out NATIVE`"
_ADVICE = {
    "lm": f"no speech LM, text can't be spoken: {_JOIN}",
    "flow": f"no flow, tokens can't become sound: {_JOIN}",
    "vocoder": f"no vocoder, tokens can't become sound: {_JOIN}",
    "speech_tokenizer": "no voice can be learnt from audio: add {tokenizer}",
    "speaker_encoder": "no voice can be learnt from audio: add campplus.onnx",
}

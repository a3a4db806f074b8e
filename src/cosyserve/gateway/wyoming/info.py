"""What a Wyoming client is told of this server: its voices, and that text may come in pieces."""

from __future__ import annotations

from wyoming.info import Attribution, Info, TtsProgram, TtsVoice

from cosyserve.contracts import ModelInfo
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.version import __version__

ATTRIBUTION = Attribution(name="cosyserve", url="")
COSYVOICE_LANGUAGES = ("en", "ja", "ko", "zh")


async def describe(context: ConnectionContext) -> Info:
    model = context.engine.model
    voices = [
        TtsVoice(
            name=name,
            attribution=ATTRIBUTION,
            installed=True,
            description=name,
            version=None,
            languages=_languages(model, name),
        )
        for name in await context.voices.names()
    ]
    program = TtsProgram(
        name="cosyserve",
        attribution=ATTRIBUTION,
        installed=True,
        description=f"cosyserve, {model.name}",
        version=__version__,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])


def _languages(model: ModelInfo, name: str) -> list[str]:
    """That of the voice, or else those of the model's voices, or else those of CosyVoice."""
    own = model.voices.get(name)
    if own and own.language:
        return [own.language]
    spoken = {voice.language for voice in model.voices.values() if voice.language}
    return sorted(spoken or COSYVOICE_LANGUAGES)

"""What an operator lets clients ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cosyserve.audio.watermark import Watermark
from cosyserve.settings import OPENAI_MODELS, Settings
from cosyserve.text.pronunciation.lexicon import read_lexicon

ANY = "*"


@dataclass(frozen=True)
class Policy:
    """The part of the settings that says what requests mean and may ask."""

    strict_fields: bool = False  # an unknown field is an error
    model_aliases: frozenset[str] = frozenset(OPENAI_MODELS.split(","))
    voice_aliases: Mapping[str, str] = field(default_factory=dict)
    reference_urls: bool = False  # recordings are fetched from the network
    require_consent: bool = False  # for the voice of a request's own recording
    lexicon: Mapping[str, str] = field(default_factory=dict)  # of all requests
    trim_leading_silence: bool = False  # of speech, unless a request says it
    watermark: Watermark | None = None  # on speech with other voices than the model's own

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        aliases = {name.strip() for name in settings.model_aliases.split(",")}
        first, key = settings.models[0], settings.watermark_key.get_secret_value()
        aliases |= {first, Path(first).name}  # as it was asked for with --model
        return cls(
            strict_fields=settings.strict_fields,
            model_aliases=frozenset(filter(None, aliases)),
            voice_aliases=settings.voice_names,
            reference_urls=settings.reference_urls,
            require_consent=settings.require_consent,
            lexicon=read_lexicon(Path(settings.lexicon)) if settings.lexicon else {},
            trim_leading_silence=settings.trim_leading_silence,
            watermark=Watermark.of(key) if key else None,
        )

    def is_alias(self, model: str) -> bool:
        """Whether the name means the model that is loaded."""
        return model in self.model_aliases or ANY in self.model_aliases

"""Turns the fields of a client's request into a `SpeechRequest`: the model, the voice, the mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

from cosyserve.audio.watermark import Watermark
from cosyserve.contracts import MIN_TEMPERATURE, Engine, Mode, Sampling, SpeechRequest, Voice
from cosyserve.errors import AudioError, InputError
from cosyserve.gateway.errors import Refusal, invalid_value
from cosyserve.gateway.models import Models
from cosyserve.gateway.policy import Policy
from cosyserve.gateway.speech.body import AudioSource, AudioURL, SpeechFields
from cosyserve.gateway.speech.dialects import labels
from cosyserve.gateway.speech.remote_audio import Fetches
from cosyserve.gateway.telemetry.metrics import Metrics
from cosyserve.gateway.telemetry.record import Record
from cosyserve.gateway.voices.consents import Consents
from cosyserve.gateway.voices.enrolment import Enrolment
from cosyserve.gateway.voices.known import KnownVoices
from cosyserve.gateway.voices.mixing import is_mix, mix, read_mix
from cosyserve.voices.fits import recording_of
from cosyserve.voices.memory.learned import LearnedVoices


class Interpreter:
    def __init__(
        self,
        models: Models,
        known: KnownVoices,
        learned: LearnedVoices,
        enrolment: Enrolment,
        consents: Consents,
        metrics: Metrics,
        policy: Policy,
        max_recording_bytes: int,
    ) -> None:
        self._models = models
        self._known = known
        self._learned = learned
        self._enrolment = enrolment
        self._consents = consents
        self._metrics = metrics
        self._policy = policy
        self._max_recording_bytes = max_recording_bytes

    def engine(self, model: str) -> Engine:
        """The engine of the model that a client names."""
        return self._models.named(model, self._policy)

    @property
    def watermark(self) -> Watermark | None:
        """The mark on speech with other voices than the model's own."""
        return self._policy.watermark

    def trims(self, fields: SpeechFields) -> bool:
        """Whether silence before the speech is left out."""
        asked = fields.trim_leading_silence
        return self._policy.trim_leading_silence if asked is None else asked

    def fetches(self) -> Fetches:
        """For several requests that may name the same recording."""
        return Fetches(self._max_recording_bytes)

    async def request(
        self,
        fields: SpeechFields,
        text: str | AsyncIterator[str],
        record: Record,
        fetches: Fetches | None = None,
    ) -> SpeechRequest:
        self._pass_over(fields)
        engine = self.engine(fields.model)
        _check_task(fields)
        mode = _asked_mode(fields)
        voice = await self._speaker(engine, fields, mode, record, fetches or self.fetches())
        return SpeechRequest(
            text=text,
            voice=voice,
            mode=mode or voice.mode,
            instruction=fields.instructions,
            speed=fields.speed,
            seed=fields.seed,
            stream=True,
            language=fields.language,
            lexicon={**self._policy.lexicon, **fields.lexicon},
            sampling=_sampling(fields, engine.model.sampling),
        )

    def _pass_over(self, fields: SpeechFields) -> None:
        """Counts, or refuses, what a client asks for and nobody here can do."""
        ignored = fields.model_extra or ()
        if ignored and self._policy.strict_fields:
            raise invalid_value("there is no such field", [min(ignored)])
        for label, count in Counter(labels(ignored)).items():
            self._metrics.ignored_fields.labels(label).inc(count)

    async def _speaker(
        self,
        engine: Engine,
        fields: SpeechFields,
        mode: Mode | None,
        record: Record,
        fetches: Fetches,
    ) -> Voice:
        param, source, text = _reference(fields)
        if source is not None:
            consent = await self._consents.statement(fields.consent)
            self._learned.check_consent(consent)
            data = await self.recording(source, param, fetches)
            return await self._learned_voice(engine, data, record, text, consent)
        if not is_mix(fields.voice):
            return await self._known_voice(engine, fields.voice, record)
        parts = [
            (await self._known_voice(engine, name, record), weight)
            for name, weight in read_mix(fields.voice)
        ]
        return mix(parts, embeddings_alone=mode is Mode.PRESET)

    async def _known_voice(self, engine: Engine, name: str, record: Record) -> Voice:
        """The voice of a name; learned anew if another family's has kept its recording."""
        voice, model = await self._known.speaker(name, engine.model), engine.model
        recording = recording_of(voice)
        if voice.family == model.family or recording is None:
            return voice
        return await self._learned.get(
            *(model.family, model.fingerprint, voice.content_hash),
            learn=lambda: self._enrolment.embed(engine, recording, record),
            consent=voice.consent,
        )

    async def _learned_voice(
        self, engine: Engine, data: bytes, record: Record, text: str, consent: str
    ) -> Voice:
        model = engine.model
        return await self._learned.get(
            *(model.family, model.fingerprint, data, text),
            learn=lambda: self._enrolment.learn(engine, data, record, text=text, consent=consent),
            consent=consent,
        )

    async def recording(
        self, source: AudioSource, param: str, fetches: Fetches | None = None
    ) -> bytes:
        """The bytes of a recording; `param` is the field that it came in."""
        if not isinstance(source, AudioURL):
            return source
        if not self._policy.reference_urls:
            raise Refusal(
                400,
                f"{param}: this server fetches no URL (COSYSERVE_REFERENCE_URLS): send the "
                "recording as base64 or as a data: URL",
                "invalid_value",
                param=param,
            )
        try:
            return await (fetches or self.fetches()).get(source.url)
        except AudioError as error:
            raise Refusal(400, f"{param}: {error}", "invalid_audio", param=param) from error


def _reference(fields: SpeechFields) -> tuple[str, AudioSource | None, str]:
    """The field with the recording whose voice is to speak, the recording, and what is said in
    it."""
    param, audio, text = "reference_audio", fields.reference_audio, fields.reference_text
    if fields.references:
        if audio is not None:
            raise invalid_value("send either references or reference_audio", ["references"])
        (reference,) = fields.references
        param, audio, text = "references", reference.audio, text or reference.text or ""
    if text and audio is None:
        raise InputError("reference_text is given without reference_audio")
    return param, audio, text


def _check_task(fields: SpeechFields) -> None:
    """Refuses a task of vLLM-Omni's that contradicts the other fields."""
    recording = fields.reference_audio is not None or bool(fields.references)
    match fields.task_type:
        case "VoiceDesign":
            fault = "a voice can't be designed by a description; name one or send ref_audio"
        case "Base" if not (recording or "voice" in fields.model_fields_set):
            fault = "'Base' needs ref_audio, or the voice of a recording"
        case "CustomVoice" if recording:
            fault = "'CustomVoice' is for named voices; with ref_audio it is 'Base'"
        case _:
            return
    raise invalid_value(fault, ["task_type"])


def _asked_mode(fields: SpeechFields) -> Mode | None:
    """The mode that the fields name or imply; None: that of the voice."""
    mode = fields.mode
    if fields.x_vector_only_mode:
        if mode not in (None, Mode.PRESET):
            raise invalid_value(f"it is mode 'preset', not '{mode}'", ["x_vector_only_mode"])
        mode = Mode.PRESET
    if fields.instructions.strip():
        if mode not in (None, Mode.INSTRUCT):
            raise InputError(f"instructions need mode 'instruct', not '{mode}'")
        return Mode.INSTRUCT
    return mode


def _sampling(fields: SpeechFields, own: Sampling) -> Sampling | None:
    """The model's own sampling, changed as asked; None: it is not."""
    if fields.top_p is None and fields.top_k is None and fields.temperature is None:
        return None
    temperature = own.temperature if fields.temperature is None else fields.temperature
    return replace(
        own,
        top_p=fields.top_p or own.top_p,
        top_k=(fields.top_k or own.top_k) if temperature else 1,
        temperature=max(temperature, MIN_TEMPERATURE),
    )

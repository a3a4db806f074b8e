"""What a worker of any role tells of its model and learns from recordings. Knows no socket."""

from __future__ import annotations

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import ModelInfo
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.workers.messages import Embed, Embedded, Failed, Ready
from cosyserve.voices import file as voice_file
from cosyserve.voices.enroll import enroll


def ready(model: ModelInfo) -> Ready:
    voices = {name: voice_file.to_bytes(voice) for name, voice in model.voices.items()}
    about = model.name, model.family, model.fingerprint, model.speech
    return Ready(*about, voices, model.takes_pieces)


def embedded(model: Model, message: Embed) -> Embedded | Failed:
    try:
        voice = enroll(model, message.recording())
        return Embedded(message.id, voice_file.to_bytes(voice))
    except Exception as error:
        return Failed.of(message.id, client_error(error))

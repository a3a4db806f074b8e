"""What a worker of any role tells of its model and learns from recordings. Knows no socket."""

from __future__ import annotations

import numpy as np

from cosyserve.audio import Audio
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import ModelInfo
from cosyserve.engine.compute.errors import told
from cosyserve.engine.workers.messages import Embed, Embedded, Failed, Ready
from cosyserve.voices import file as voice_file
from cosyserve.voices.enroll import enroll


def ready(model: ModelInfo) -> Ready:
    voices = {name: voice_file.to_bytes(voice) for name, voice in model.voices.items()}
    about = model.name, model.family, model.fingerprint, model.speech
    return Ready(*about, voices, model.takes_pieces)


def embedded(model: Model, message: Embed) -> Embedded | Failed:
    audio = Audio(np.frombuffer(message.samples, np.float32), message.rate)
    try:
        voice = enroll(
            model,
            audio,
            message.text,
            name=message.name,
            language=message.language,
            consent=message.consent,
        )
        return Embedded(message.id, voice_file.to_bytes(voice))
    except Exception as error:
        return Failed.of(message.id, told(error))

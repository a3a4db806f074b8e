"""Mel frames to samples, for whoever has made frames with `token2wav`.

Nothing is kept between requests: a stream sends all its frames so far. Frames that are not the last
of their speech become samples as far as those are final, so that earlier samples come again
unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import numpy as np
import torch

from cosyserve.contracts import MEL_BINS, Floats
from cosyserve.errors import InputError
from cosyserve.models.vocoder import stream
from cosyserve.triton.models.instance.async_model import AsyncTritonModel, Outputs, Request
from cosyserve.triton.models.instance.loading import load_vocoder

MAX_FRAMES = 15_000  # five minutes: no flow makes more at once


class TritonPythonModel(AsyncTritonModel):
    def prepare(self) -> None:
        self.vocoder = load_vocoder(self.settings)
        self._one_at_a_time = asyncio.Lock()

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        mel, final = request.need("mel"), request.get_bool("finalize", True)
        held = 0 if final else self.vocoder.margins.held
        if mel.ndim != 2 or len(mel) != MEL_BINS or not held < mel.shape[1] <= MAX_FRAMES:
            raise InputError(
                f"mel has shape {list(mel.shape)}: send {MEL_BINS} bins of {held + 1} to "
                f"{MAX_FRAMES} frames"
            )
        if not np.isfinite(mel).all():
            raise InputError("mel holds numbers that are not finite")
        async with self._one_at_a_time:
            samples = await asyncio.to_thread(self._samples, mel, final)
        yield {"tts_speech": samples[None]}

    @torch.inference_mode()
    def _samples(self, mel: Floats, final: bool) -> Floats:
        vocoder = self.vocoder
        frames = torch.from_numpy(mel).to(vocoder.conv_pre.weight.device)
        ((samples, _),) = stream.advance(vocoder, [stream.begin(vocoder, 0)], [frames], [final])
        found: Floats = samples.cpu().numpy()
        return found

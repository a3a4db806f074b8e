"""CosyVoice3's `token2wav`: speech tokens to mel frames, for a vocoder elsewhere, or to a waveform.

The original's makes mel frames alone, anew at each request. `cosyvoice3` asks for the waveform,
which is made chunk by chunk without a second journey.
"""

from __future__ import annotations

import asyncio

import torch

from cosyserve.contracts import Floats
from cosyserve.models.flow.stream import FlowState
from cosyserve.triton.models import token2wav
from cosyserve.triton.models.instance.async_model import Outputs, Request
from cosyserve.triton.models.token2wav_input import Token2WavInput


class TritonPythonModel(token2wav.TritonPythonModel):
    def prepare(self) -> None:
        super().prepare()
        self._one_at_a_time = asyncio.Lock()

    async def outputs(
        self, request: Request, params: Token2WavInput, tokens: tuple[int, ...]
    ) -> Outputs:
        outputs: Outputs = {}
        if "waveform" in request.outputs:
            outputs |= await super().outputs(request, params, tokens)
        if "mel" in request.outputs:
            chunk: tuple[int, bool] | None = None
            if request.array("token_offset") is not None:
                chunk = request.get_int("token_offset", 0), request.get_bool("finalize", False)
                self.end(tokens, chunk[0], final=chunk[1])
            async with self._one_at_a_time:
                mel = await asyncio.to_thread(self._mel, params, tokens, chunk)
            outputs["mel"] = mel[None]
        return outputs

    @torch.inference_mode()
    def _mel(
        self, params: Token2WavInput, tokens: tuple[int, ...], chunk: tuple[int, bool] | None
    ) -> Floats:
        """Frames [80, n] of all tokens, or of a chunk: behind so many tokens, and whether it is the
        last. They are those of the waveform."""
        flow, prompt = self.token2wav.token2wav.flow, self.begin(params).flow.prompt
        ids = torch.tensor(tokens, device=flow.weight.device)
        if chunk is None:
            (mel,) = flow.whole([prompt], [ids])
        else:
            offset, final = chunk
            ((mel, _),) = flow.advance([FlowState(prompt, offset)], [ids], [final])
        frames: Floats = mel.float().cpu().numpy()
        return frames

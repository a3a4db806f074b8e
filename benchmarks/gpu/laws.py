"""What a stream may rely on, on this device: a stream is the whole, who shares its batch and when
makes no difference, and whoever leaves takes nothing along.

In float32 where a law says so, else as the engine computes; decibels are those of the difference.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import torch

from benchmarks.gpu.bench import Bench, finished
from benchmarks.gpu.checks import prompt_of
from benchmarks.gpu.speech import crowd_of
from cosyserve.contracts import AudioChunk, Floats
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.padded_flow import FlowGraphs
from cosyserve.engine.compute.hops import hop_ends
from cosyserve.engine.compute.queued_audio import Token2WavState
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.errors import CosyError
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowState
from cosyserve.models.fused import fused_lm
from cosyserve.models.lm.lm import KVCache

COMPANY = 8  # rows


@torch.inference_mode()
def laws(bench: Bench) -> dict[str, float]:
    crowd_of(bench)  # warmed up as the engine computes
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        exact = {
            **_mel_errors(bench),
            "company_logits_error": _company_logits_error(bench),
        }
    streamed, whole = _streamed_and_whole(bench)
    steps = [float(np.abs(np.diff(wave)).max()) for wave in (streamed, whole)]
    return exact | {
        "streamed_db": _db(streamed, whole),
        "jump": steps[0] / steps[1],
        "company_step_error": _company_step_error(bench),
        "company_db": _company_db(bench),
        "again_db": _db(*(_said(bench, 7) for _ in range(2))),
        "held_by_leavers": _held_by_leavers(bench),
    }


def _mel_errors(bench: Bench) -> dict[str, float]:
    """The largest differences of a frame's number in float32: of a stream from the same as a whole,
    and from that of the plain modules."""
    flow = copy.deepcopy(bench.flow).float()
    steps = FlowGraphs(flow, DeviceQueue(bench.device), (1,), 512)
    bench.sync()
    tokens = bench.random_tokens(5, bench.few(250, 60))
    *ends, last = _ends(bench, flow, len(tokens))

    def streamed(state: FlowState, chunks: list[int], *, plain: bool) -> torch.Tensor:
        found = []
        for end in chunks:
            given, final = tokens[: end + flow.lookahead], end == last
            if plain:
                ids = torch.tensor(given, device=bench.device)
                ((mel, state),) = flow.advance([state], [ids], [final])
            else:
                ((mel, state),) = finished(steps.advance([state], [given], [final]))
            found.append(mel.clone())
        return torch.cat(found, dim=1)

    with steps.queue.use():
        begun = FlowState(prompt_of(bench, flow))
        ours = streamed(begun, [*ends, last], plain=False)
        whole = streamed(replace(begun, ends=tuple(ends)), [last], plain=False)
        wanted = streamed(begun, [*ends, last], plain=True)
        return {
            "streamed_mel_error": float((ours - whole).abs().max()),
            "plain_mel_error": float((ours - wanted).abs().max()),
        }


def _streamed_and_whole(bench: Bench) -> list[Floats]:
    """What a flow must know of where chunks ended, it is told in both cases."""
    token2wav = Token2Wav(bench.flow, bench.vocoder, static=True)
    tokens = bench.random_tokens(5, bench.few(250, 60))
    *ends, last = _ends(bench, bench.flow, len(tokens))
    begun = _state(bench, token2wav, 0)
    known = replace(begun, flow=replace(begun.flow, ends=tuple(ends)))
    waves = []
    for state, chunks in ((begun, [*ends, last]), (known, [last])):
        found = []
        for end in chunks:
            given = tokens[: end + state.lookahead]
            ((samples, state),) = token2wav.advance([state], [given], [end == last])
            found.append(samples)
        waves.append(np.concatenate(found))
    return waves


def _ends(bench: Bench, flow: Flow, tokens: int) -> list[int]:
    """Of a stream's chunks."""
    ends: list[int] = []
    for end in hop_ends(len(bench.voice.speech_tokens), flow.grid):
        if end + flow.lookahead >= tokens:
            return [*ends, tokens]
        ends.append(end)
    raise AssertionError


def _company_logits_error(bench: Bench) -> float:
    """Of an LM in float32 that is told what to say: of the largest logit, alone and in company."""
    lm = copy.deepcopy(bench.lm).float()
    device, steps = bench.device, bench.few(100, 10)
    ids = torch.randint(0, lm.config.vocab, (COMPANY, steps), device=device)
    found = []
    for rows in (1, COMPANY):
        cache = KVCache.empty(lm.config, rows, steps, device=device)
        start = torch.zeros(rows, dtype=torch.long, device=device)
        found.append(lm.logits(lm.extend(ids[:rows], start, cache, steps)[0]))
    return float((found[0] - found[1]).abs().max() / found[0].abs().max())


def _company_step_error(bench: Bench) -> float:
    """Of a row's logits as the engine computes them, in batches of all kinds."""
    lm, rows, span = bench.lm, 129, 64
    kernels = fused_lm(lm, span)
    chance = torch.Generator(bench.device).manual_seed(0)
    ids = torch.randint(0, lm.config.vocab, (rows,), generator=chance, device=bench.device)
    lengths = torch.full((rows,), 40, device=bench.device)
    held = KVCache.empty(lm.config, rows, span, device=bench.device, dtype=bench.dtype)
    for part in (held.keys, held.values):
        part.normal_(generator=chance)

    def row(count: int) -> torch.Tensor:
        given = ids[:count], lengths[:count]
        if kernels:
            return kernels.logits(*given, held, span)[0]
        return lm.logits(lm.extend(given[0][:, None], given[1], held, span)[:, 0])[0]

    alone = row(1)
    return max(float((row(n) - alone).norm() / alone.norm()) for n in (2, 3, 64, 65, rows))


def _company_db(bench: Bench) -> float:
    token2wav = crowd_of(bench).token2wav
    rows = [bench.random_tokens(n, 30 + n) for n in range(COMPANY)]
    states = [_state(bench, token2wav, n) for n in range(COMPANY)]
    final = [True] * COMPANY
    ((alone, _),) = token2wav.advance(states[:1], rows[:1], final[:1])
    return _db(token2wav.advance(states, rows, final)[0][0], alone)


def _state(bench: Bench, token2wav: Token2Wav, seed: int) -> Token2WavState:
    return token2wav.begin(bench.voice, with_prompt=True, seed=seed, speed=1.0)


def _said(bench: Bench, seed: int) -> Floats:
    """By the whole engine."""
    crowd, heard = crowd_of(bench), list[AudioChunk | CosyError]()
    crowd.session(seed, heard.append)
    crowd.rest()
    assert not any(isinstance(item, CosyError) for item in heard), heard
    return np.concatenate([item.samples for item in heard if isinstance(item, AudioChunk)])


def _held_by_leavers(bench: Bench) -> int:
    """Sessions that still have a place one turn after their listener left, at any point."""
    crowd, held = crowd_of(bench), 0
    scheduler = crowd.scheduler
    for turns in range(0, bench.few(400, 40), bench.few(23, 7)):
        session = crowd.session(turns, lambda item: None)
        for _ in range(turns):
            scheduler.step()
        scheduler.cancel(session)
        scheduler.step()
        held += len(scheduler.running) + len(scheduler.waiting) + len(scheduler.lm.rows)
        crowd.rest()
    return held


def _db(found: Floats, wanted: Floats) -> float:
    assert len(found) == len(wanted), f"{len(found)} samples instead of {len(wanted)}"
    off = float(np.sqrt(np.mean((found - wanted) ** 2)))
    return 20 * math.log10(max(off, 1e-9) / float(np.sqrt(np.mean(wanted**2))))

"""Correctness beside speed: what the GPU computes is what the plain modules compute."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.bench import Bench, finished
from benchmarks.gpu.speech import crowd_of
from cosyserve.contracts import Floats, Sampling
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.lm import TILE
from cosyserve.engine.compute.graphs.packed_flow import PackedFlow
from cosyserve.engine.compute.graphs.padded_flow import FlowGraphs
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.errors import CosyError
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt
from cosyserve.models.fused import fused_lm
from cosyserve.models.lm import draw
from cosyserve.models.lm.lm import KVCache

BATCH = 32


@torch.inference_mode()
def mel_rel_error(bench: Bench) -> float:
    """The flow as the engine computes it against float32, 10 s of speech behind a prompt: the worse
    of a text that is alone, and of the last of a whole pack."""
    exact = copy.deepcopy(bench.flow).float()
    tokens = bench.random_tokens(2, bench.few(250, 30))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        ids = torch.tensor(tokens, device=bench.device)
        (wanted,) = exact.whole([prompt_of(bench, exact)], [ids])
    queue = DeviceQueue(bench.device)
    most = bench.few(12, 2)
    steps = PackedFlow.of(bench.flow, queue, most) or FlowGraphs(bench.flow, queue, (most,), 512)
    bench.sync()
    errors = []
    with steps.queue.use():
        for rows in (1, most):
            prompts, texts = [prompt_of(bench, bench.flow)] * rows, [tokens] * rows
            found = finished(steps.whole(prompts, texts))[-1]
            errors.append(float((found - wanted).norm() / wanted.norm()))
    return max(errors)


def prompt_of(bench: Bench, flow: Flow) -> FlowPrompt:
    like = flow.weight
    return FlowPrompt(
        torch.from_numpy(bench.voice.speech_tokens).long().to(like.device),
        torch.from_numpy(bench.voice.mel).to(like),
        torch.from_numpy(bench.voice.embedding).to(like),
    )


def nan_in_1000(bench: Bench) -> int:
    """Random utterances in random voices whose speech holds something that is no number."""
    return _broken(bench, bench.few(1000, 4))


def nan_with_large_weights(bench: Bench) -> int:
    """The same with weights scaled until activations pass 6e4, where float16 would end."""
    kept = {name: value.clone() for name, value in bench.flow.state_dict().items()}
    seen = 0.0

    def look(module: Any, args: Any, out: Any) -> None:
        nonlocal seen
        if isinstance(out, torch.Tensor):
            seen = max(seen, float(out.float().abs().max()))

    hooks = [module.register_forward_hook(look) for module in bench.flow.modules()]
    try:
        for _ in range(12):
            with torch.no_grad():
                for name, value in bench.flow.named_parameters():
                    if "norm" not in name and value.ndim > 1:
                        value.mul_(2.0)
            seen = 0.0
            mel_rel_error(bench)
            if seen > 6e4:
                break
        for hook in hooks:
            hook.remove()
        if seen <= 6e4:
            raise CosyError(f"activations came to {seen:.0f} only")
        return _broken(bench, bench.few(64, 2))
    finally:
        for hook in hooks:
            hook.remove()
        bench.flow.load_state_dict(kept)


def _broken(bench: Bench, count: int) -> int:
    token2wav, found = Token2Wav(bench.flow, bench.vocoder, (1, BATCH)), 0
    chance = np.random.default_rng(0)
    for start in range(0, count, BATCH):
        seeds = range(start, min(count, start + BATCH))
        states = [
            token2wav.begin(bench.random_voice(s, 25), with_prompt=True, seed=s, speed=1.0)
            for s in seeds
        ]
        rows = [bench.random_tokens(s, int(chance.integers(5, 60))) for s in seeds]
        try:
            token2wav.start(states, rows, [True] * len(rows), urgent=True).get()
        except CosyError:
            for state, row in zip(states, rows, strict=True):
                try:
                    token2wav.start([state], [row], [True], urgent=True).get()
                except CosyError:
                    found += 1
    return found


@torch.inference_mode()
def captured_equal(bench: Bench) -> bool:
    """A stream of two chunks replayed, and the same computed kernel by kernel, bit by bit; both in
    a voice that was heard before."""
    said = []
    for token2wav in (crowd_of(bench).token2wav, Token2Wav(bench.flow, bench.vocoder)):
        _two_chunks(bench, token2wav)
        said.append(_two_chunks(bench, token2wav))
    captured, plain = said
    return bool(np.array_equal(captured, plain))


def _two_chunks(bench: Bench, token2wav: Token2Wav) -> Floats:
    state = token2wav.begin(bench.voice, with_prompt=True, seed=0, speed=1.0)
    tokens, chunks = bench.random_tokens(3, 60), []
    for count, final in ((16, False), (60, True)):
        audio = token2wav.start([state], [tokens[:count]], [final], urgent=not final)
        ((samples, state),) = audio.get()
        chunks.append(samples)
    return np.concatenate(chunks)


@torch.inference_mode()
def kernels_against_module(bench: Bench) -> dict[str, float]:
    """Logits of our kernels and of the plain module: relative error, and rows with another first
    choice though the module's lead is larger than the error."""
    config, found = bench.lm.config, {}
    kernels = fused_lm(bench.lm, 256)
    if kernels is None:
        raise CosyError("there are no kernels for this device")
    for rows in (2, 3, 64, 65, 129):  # one of each kind of step, and tiles that are not full
        caches = [
            KVCache.empty(config, rows, 256, device=bench.device, dtype=bench.dtype)
            for _ in range(2)
        ]
        for part in ("keys", "values"):
            filled = torch.randn_like(getattr(caches[0], part))
            for cache in caches:
                getattr(cache, part).copy_(filled)
        ids = torch.randint(0, config.vocab, (rows,), device=bench.device)
        lengths = torch.randint(1, 250, (rows,), device=bench.device)
        ours = kernels.logits(ids, lengths, caches[0], 256)
        wanted = bench.lm.logits(bench.lm.extend(ids[:, None], lengths, caches[1], 256)[:, 0])
        error = (ours - wanted).norm() / wanted.norm()
        lead = wanted.topk(2).values.diff().abs()[:, 0] > 0.02 * wanted.abs().amax(-1)
        other = (ours.argmax(-1) != wanted.argmax(-1)) & lead
        found[f"relative_error_{rows}"] = float(error)
        found[f"other_first_choice_{rows}"] = float(other.sum())
    return found


@torch.inference_mode()
def int8_agreement(bench: Bench) -> dict[str, float]:
    """Weights in eight bits against bfloat16, over histories of random tokens: relative error of
    the logits, and the share of equal first choices. Random weights hardly prefer any, so that
    trained ones agree more often."""
    config, count, held = bench.lm.config, bench.few(200, 4), 2 * TILE
    found = []
    for eight_bits in (False, True):
        bench.lm.eight_bits = eight_bits
        kernels = fused_lm(bench.lm, 256)
        bench.lm.eight_bits = False
        if kernels is None:
            raise CosyError("there are no kernels for this device")
        cache = KVCache.empty(config, 1, 256, device=bench.device, dtype=bench.dtype)
        rows = []
        for seed in range(count):
            ids = torch.tensor(bench.random_tokens(seed, held), device=bench.device)
            slots, starts = torch.tensor([[0, 0], [0, TILE]], device=bench.device)
            size = torch.tensor([held], device=bench.device)
            kernels.prompt(ids + config.text_vocab, slots, starts, size - 1, cache, 256)
            rows.append(kernels.logits(ids[:1] + config.text_vocab, size, cache, 256))
        found.append(torch.cat(rows))
    wanted, ours = found
    same = (wanted.argmax(-1) == ours.argmax(-1)).double().mean()
    error = (ours - wanted).norm() / wanted.norm()
    return {"relative_error": float(error), "same_first_choice": float(same)}


@torch.inference_mode()
def draws_chi2(bench: Bench) -> dict[str, float]:
    """Draws of our kernel against those of the reference, as counts of the same ids: chi-squared
    and degrees of freedom, which should be near each other; and the share of equal draws where both
    were given the same seeds."""
    config, count = bench.lm.config, bench.few(20_000, 200)
    ints = torch.zeros(count, draw.INTS, dtype=torch.long, device=bench.device)
    ints[:, draw.SEED] = torch.arange(count, device=bench.device)
    ints[:, draw.ACTIVE] = 1
    ints[:, draw.TOP_K], ints[:, draw.WINDOW] = Sampling().top_k, Sampling().window
    ints[:, draw.HISTORY :] = -1
    floats = torch.tensor([draw.float_rules(Sampling())], dtype=torch.float64)
    floats = floats.to(bench.device).expand(count, -1).contiguous()
    logits = 2.0 * torch.randn(1, config.classes, device=bench.device)
    logits = logits.expand(count, -1).contiguous()
    kernels = fused_lm(bench.lm, 64)
    if kernels is None:
        raise CosyError("there are no kernels for this device")
    outcome = torch.zeros(count, 2, dtype=torch.float64, device=bench.device)
    wanted = draw.draw(logits, ints.clone(), floats, config, 32)[:, 0].long()
    kernels.draw(logits, ints.clone(), floats, outcome, None, 32)
    same = (outcome[:, 0].long() == wanted).double().mean()
    ints[:, draw.SEED] += count  # other draws of the same distribution
    kernels.draw(logits, ints, floats, outcome, None, 32)
    a = torch.bincount(wanted, minlength=config.classes).double()
    b = torch.bincount(outcome[:, 0].long(), minlength=config.classes).double()
    met = a + b > 0
    chi2 = ((a - b) ** 2 / (a + b))[met].sum()
    return {
        "chi2": float(chi2),
        "freedom": float(met.sum() - 1),
        "same_seed_same_draw": float(same),
    }

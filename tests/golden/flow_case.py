"""Golden cases of both flows and of the vocoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.models.flow.flow import Flow, FlowBatch
from cosyserve.models.flow.masks import attention_bias
from cosyserve.models.flow.stream import FlowCache, FlowPrompt, FlowState
from tests.golden.weights import (
    Fill,
    dit_flow_config,
    filled_flow,
    filled_vocoder,
    unet_flow_config,
    vocoder_config,
)

Arrays = dict[str, np.ndarray]


def _tensors(a: Arrays, *names: str) -> list[Tensor]:
    return [torch.from_numpy(a[name]) for name in names]


def _prompt(a: Arrays, mel: str) -> FlowPrompt:
    tokens, frames, speaker = _tensors(a, "prompt_token", mel, "embedding")
    return FlowPrompt(tokens[0], frames[0], speaker[0])


def _estimate(flow: Flow, a: Arrays, chunk: int) -> np.ndarray:
    x, mu, speaker, prompt, t = _tensors(a, "est_x", "est_mu", "est_spks", "est_cond", "est_t")
    bias = attention_bias(None, x.shape[2], chunk, x)
    return flow.estimator(x, mu, speaker, prompt, t, bias).numpy()


def flow_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    flow = filled_flow(unet_flow_config(c), salt, fill)
    prompt, tokens = _prompt(a, "prompt_feat"), torch.from_numpy(a["token"][0])
    aligned, unaligned = int(a["n_aligned"]), int(a["n_unaligned"])
    noise = torch.from_numpy(a["noise"])

    def batch(count: int, final: bool) -> FlowBatch:
        return flow._collate([prompt], [tokens[:count]], [final])

    def encode(final: bool, streaming: bool) -> Tensor:
        b = batch(len(tokens), final)
        x = flow.input_embedding(b.tokens)
        return flow.encoder(x, b.lengths, b.inside, b.size, streaming)

    def mel(count: int, final: bool, streaming: bool) -> Tensor:
        b = batch(count, final)
        frames = FRAMES_PER_TOKEN * b.size
        return flow(b, streaming, noise[:, :, :frames])[:, :, len(prompt.mel) :]

    step = int(a["enc_frame_step"])
    stream_final = mel(len(tokens), True, True)
    stream_aligned = mel(aligned, False, True)
    prefix = stream_final[:, :, : stream_aligned.shape[2]]
    outputs = {
        "enc_full": encode(True, False)[:, ::step],
        "enc_stream": encode(True, True)[:, ::step],
        "enc_stream_ctx": encode(False, True)[:, ::step],
        "mu_full": flow.conditions(batch(len(tokens), True), False).transpose(1, 2),
        "spk_proj": flow.speaker(prompt.speaker[None]),
        "mel_full": mel(len(tokens), True, False),
        "mel_stream_final": stream_final,
        "mel_stream_notfinal": mel(unaligned, False, True),
        "mel_nostream_notfinal": mel(unaligned, False, False),
        "mel_stream_aligned": stream_aligned,
        "aligned_prefix_maxdiff": (stream_aligned - prefix).abs().max(),
    }
    public = flow.advance([FlowState(prompt)], [tokens], [True])[0][0]
    # Not every processor's normal numbers have the same last bits.
    torch.testing.assert_close(public, stream_final[0], atol=1e-5, rtol=0.0)
    return {name: value.numpy() for name, value in outputs.items()} | {
        "est_full": _estimate(flow, a, 0),
        "est_stream": _estimate(flow, a, c["chunk_mel"]),
    }


def step2_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    """Chunks with caches; the original's cut of the cache is imitated here, not in the product."""
    flow = filled_flow(dit_flow_config(c), salt, fill)
    prompt, tokens = _prompt(a, "prompt_mel"), torch.from_numpy(a["token"][0])
    noise, look = torch.from_numpy(a["noise"][0]), c["lookahead"]
    whole = flow.conditions(flow._collate([prompt], [tokens], [True]), False).transpose(1, 2)
    stride = -(-whole.shape[1] // a["mu_offline"].shape[1])
    out: Arrays = {
        "mu_offline": whole[:, ::stride].numpy(),
        "est_offline": _estimate(flow, a, 0),
    }
    sizes = [len(prompt.mel)]
    start = torch.cat((prompt.tokens, prompt.tokens[:look]))
    mel, cache = flow.extend(
        start, prompt.speaker, prompt.mel, None, last=False, noise=noise[:, : sizes[0]]
    )
    out |= _caches(cache, "setup", sizes)
    out["setup_mu"], _ = _mu(flow, start, None, last=False)
    out["setup_feat"] = mel[None].numpy()
    hops = a["hops"].tolist()
    done, limit = 0, 2 * len(prompt.tokens) + 100
    for k in range(len(hops) + 1):
        last = k == len(hops)
        chunk = tokens[done:] if last else tokens[done : done + hops[k] + look]
        # The original counts the noise by its cut cache: after the cut it repeats itself.
        at = cache.steps[0].attention.shape[3]
        frames = FRAMES_PER_TOKEN * (len(chunk) - (0 if last else look))
        out[f"mu_{k}"], _ = _mu(flow, chunk, cache, last)
        mel, cache = flow.extend(
            chunk, prompt.speaker, None, cache, last=last, noise=noise[:, at : at + frames]
        )
        out[f"mel_{k}"] = mel[None].numpy()
        sizes.append(frames)
        if cache.steps[0].attention.shape[3] > limit:
            cache, sizes = _original_cut(cache, sizes, 2 * len(prompt.tokens))
            out[f"trimmed_after_{k}"] = np.array(cache.steps[0].attention.shape[3])
        if f"conformer_cnn_{k}" in a:
            out |= _caches(cache, str(k), sizes)
        done += 0 if last else hops[k]
    return out


def _mu(flow: Flow, tokens: Tensor, cache: FlowCache | None, last: bool) -> tuple[np.ndarray, None]:
    x, _ = flow.encoder.extend(
        flow.input_embedding(tokens[None]), cache.encoder if cache else None, last
    )
    return flow.encoder_proj(x).transpose(1, 2).numpy(), None


def _newest_first(attention: Tensor, sizes: list[int]) -> Tensor:
    return torch.cat(attention.split(sizes, dim=-2)[::-1], dim=-2)


def _original_cut(cache: FlowCache, sizes: list[int], head: int) -> tuple[FlowCache, list[int]]:
    """First `head` and last 100 entries of the newest-first order, as one old block."""

    def cut(attention: Tensor) -> Tensor:
        newest = _newest_first(attention, sizes)
        return torch.cat((newest[..., :head, :], newest[..., -100:, :]), dim=-2)

    steps = tuple(replace(step, attention=cut(step.attention)) for step in cache.steps)
    return replace(cache, steps=steps), [steps[0].attention.shape[3]]


def _caches(cache: FlowCache, tag: str, sizes: list[int]) -> Arrays:
    """Our caches in the original's layout, and the slices of it that the golden set keeps."""
    frames = cache.encoder.attention[-1].shape[2]
    conformer = torch.stack(
        [
            kv if kv.shape[2] == frames else torch.cat((kv, kv), dim=2)
            for kv in cache.encoder.attention
        ]
    )
    estimator = torch.stack([_newest_first(step.attention, sizes) for step in cache.steps])
    conv = torch.stack([step.conv for step in cache.steps])
    left = torch.cat((cache.encoder.after_lookahead, cache.encoder.upsampled), dim=2)
    return {
        f"conformer_cnn_cache_shape_{tag}": np.array(left.shape),
        f"conformer_att_cache_shape_{tag}": np.array(conformer.shape),
        f"estimator_cnn_cache_shape_{tag}": np.array(conv.shape),
        f"estimator_att_cache_shape_{tag}": np.array(estimator.shape),
        f"conformer_att_slice_{tag}": conformer[:, 0, 0, :, :3].numpy(),
        f"estimator_att_slice_{tag}": estimator[::3, 0, :, 0, :, :2].numpy(),
        f"estimator_cnn_slice_{tag}": conv[::3, -1, :, ::16].numpy(),
        f"conformer_cnn_{tag}": left[:, ::4].numpy(),
    }


def hift_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    vocoder = filled_vocoder(vocoder_config(c), salt, fill)
    mel, source_in, cached, f0_in = _tensors(a, "mel", "source_in", "cache_source", "f0_in")
    noise = torch.from_numpy(a["noise_f16"]).float()
    f0 = vocoder.f0(mel)
    source = vocoder.source(f0, noise)
    seam, around = cached.shape[2], a["source_with_cache_head"].shape[2] // 2
    patched = torch.cat((cached[:, 0], source[:, seam:]), dim=1)
    outputs = {
        "f0": f0,
        "source": source[:, None],
        "uv": (f0 > vocoder.config.voiced_above).float(),
        "source_of_f0_in": vocoder.source(f0_in, noise)[:, None],
        "decode_of_source_in": vocoder(mel, source_in[:, 0]),
        "speech": vocoder(mel, source),
        "speech_with_cache": vocoder(mel, patched),
        "source_with_cache_head": patched[:, None, seam - around : seam + around],
    }
    return {name: value.numpy() for name, value in outputs.items()}

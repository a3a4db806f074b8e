"""Golden cases of CosyVoice3: its speech LM, its flow and its vocoder."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN, Sampling
from cosyserve.models.config import LMConfig
from cosyserve.models.flow.masks import attention_bias
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from cosyserve.models.lm.bistream import Bistream
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.models.lm.sampling import Rules, nucleus, sample
from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.hift import HiFT
from tests.golden.lm_case import Decoder, edge_distance, greedy, prompt_ids, spoken_streams
from tests.golden.weights import (
    Fill,
    cosyvoice3_flow_config,
    filled_flow,
    filled_lm,
    filled_vocoder,
    lm_config,
    vocoder_config,
)

Arrays = dict[str, np.ndarray]


def llm_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    config = lm_config(c)
    lm = filled_lm(config, salt, fill)
    prompt = prompt_ids(config, a, "prompt_text", "text")
    if "speech" not in a:
        return _full_size(lm, prompt, len(a["greedy_ids"]))
    speech = a["speech"][0].tolist()
    hidden = lm(torch.tensor([prompt + [config.text_vocab + i for i in speech]]))[0]
    logp = lm.logits(hidden).log_softmax(-1)
    ahead = torch.tensor([*speech, config.eos])
    top = logp.topk(20)
    ids, _, margins = greedy(Decoder(lm, prompt, len(prompt) + 20), 20)
    text = a["prompt_text"][0].tolist()
    prefix = text[: text.index(c["endofprompt"]) + 1]
    instructed = [config.sos, *prefix, *a["text"][0].tolist(), config.task]
    told, logits, told_margins = greedy(Decoder(lm, instructed, len(instructed) + 8), 8)
    told_top = torch.stack(logits).topk(20)
    return {
        "hidden": hidden.numpy(),
        "target_logp": logp[len(prompt) - 1 :][torch.arange(len(ahead)), ahead].numpy(),
        "logp_last2": logp[-2:].numpy(),
        "logp_top20_ids": top.indices.numpy(),
        "logp_top20": top.values.numpy(),
        "logp_sum": logp.sum(-1).numpy(),
        "greedy20": np.array(ids),
        "greedy_margin": np.array(margins),
        "instruct_greedy8": np.array(told),
        "instruct_margin": np.array(told_margins),
        "instruct_top20_ids": told_top.indices.numpy(),
        "instruct_top20": told_top.values.numpy(),
        **_drawn(lm, a, "ras", masked=[config.speech_tokens]),
        **_drawn(lm, a, "mend", masked=list(config.control)),
    }


def _full_size(lm: SpeechLM, prompt: list[int], steps: int) -> Arrays:
    ids, rows, margins = greedy(Decoder(lm, prompt, len(prompt) + steps), steps)
    logits = torch.stack(rows)
    top = logits.topk(50)
    return {
        "greedy_ids": np.array(ids),
        "logits_top50_ids": top.indices.numpy(),
        "logits_top50": top.values.numpy(),
        "logits_sum": logits.sum(-1).numpy(),
        "logits_logsumexp": logits.logsumexp(-1).numpy(),
        "logits_first64": logits[:, :64].numpy(),
        "logits_stop200": logits[:, lm.config.speech_tokens :].numpy(),
        "greedy_margin": np.array(margins),
    }


def _drawn(lm: SpeechLM, a: Arrays, name: str, masked: list[int]) -> Arrays:
    """Utterances with given uniforms; `masked` classes can't end the first 2 steps per text id:
    `ras` masks the start as the original does, `mend` all that end."""
    rows = [_utterance(lm, a, row, masked) for row in range(len(a["ras_text"]))]
    steps = a["ras_u1"].shape[1]

    def padded(key: int, blank: int = 0) -> np.ndarray:
        return np.array([row[key] + [blank] * (steps - len(row[key])) for row in rows])

    return {
        f"{name}_tokens": padded(0, -1),
        f"{name}_nucleus_sizes": padded(1),
        f"{name}_fallback": padded(2),
        f"{name}_end": np.array([row[3] for row in rows]),
        f"{name}_draw_margin_min": np.array(min(row[4] for row in rows)),
    }


def _utterance(
    lm: SpeechLM, a: Arrays, row: int, masked: list[int]
) -> tuple[list[int], list[int], list[int], int, float]:
    """Tokens, sizes of the nucleus, whether it was drawn again, the class that ended it (-1: none)
    and the smallest distance of a draw from an edge."""
    config, sampling = lm.config, Sampling()
    rules = Rules.of([sampling])
    text = a["ras_text"][row].tolist()
    speech = [config.text_vocab + i for i in a["prompt_speech"][0].tolist()]
    prompt = [config.sos, *a["prompt_text"][0].tolist(), *text, config.task, *speech]
    decoder = Decoder(lm, prompt, len(prompt) + a["ras_u1"].shape[1])
    tokens: list[int] = []
    sizes, again, margins, end = [], [], [], -1
    for step, (u1, u2) in enumerate(zip(a["ras_u1"][row], a["ras_u2"][row], strict=True)):
        forbidden = torch.zeros(config.classes, dtype=torch.bool)
        forbidden[masked] = step < 2 * len(text)
        history = torch.tensor([([-1] * sampling.window + tokens)[-sampling.window :]])
        uniforms = torch.tensor([u1]), torch.tensor([u2])
        draw = sample(decoder.logits, history, *uniforms, forbidden, rules, sampling.top_k)
        logits = decoder.logits.masked_fill(forbidden, -torch.inf)
        likely = nucleus(logits.softmax(-1), rules, sampling.top_k)
        sizes.append(int(likely.size))
        again.append(int(draw.repeats >= 1))
        margins.append(edge_distance(likely.probs[0, : sizes[-1]], u1))
        if again[-1]:
            others = logits.scatter(1, draw.first[:, None], -torch.inf).softmax(-1)
            margins.append(edge_distance(others[0], u2))
        if int(draw.ids) in config.stops:
            end = int(draw.ids)
            break
        tokens.append(int(draw.ids))
        decoder.speech(tokens[-1])
    return tokens, sizes, again, end, min(margins)


class OriginalBistream(Bistream):
    """The original takes its prefix for text: without prompt speech it begins to draw after the
    first text id, with nothing of the text fed."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._started = True


def bistream_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    """Prefix from 10 and the end of the prompt, transcript from 300, speech from 500."""
    config = LMConfig(kind="cosyvoice3")
    outputs = {}
    for name, kind in (("", OriginalBistream), ("mend_", Bistream)):
        streams = [
            kind(
                config,
                range(300, 300 + a["prompt_text_len"][case]),
                range(500, 500 + a["prompt_speech_len"][case]),
                [*range(10, 10 + a["prefix_len"][case]), c["endofprompt"]],
            )
            for case in range(len(a["text_len"]))
        ]
        outputs |= {name + key: value for key, value in spoken_streams(streams, a).items()}
    return outputs


def flow_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    flow = filled_flow(cosyvoice3_flow_config(c), salt, fill)
    prompt = FlowPrompt(
        *(torch.from_numpy(a[name][0]) for name in ("prompt_token", "prompt_feat", "embedding"))
    )
    tokens, noise = torch.from_numpy(a["token"][0]), torch.from_numpy(a["noise"])

    def conditions(final: bool) -> np.ndarray:
        batch = flow._collate([prompt], [tokens], [final])
        return flow.conditions(batch, True)[:, :, ::FRAMES_PER_TOKEN].transpose(1, 2).numpy()

    def mel(count: int, final: bool, streaming: bool = True, first: int = 0) -> Tensor:
        batch = flow._collate([prompt], [tokens[:count]], [final])
        begin = FRAMES_PER_TOKEN * (len(prompt.tokens) + first)
        return flow(batch, streaming, noise[:, :, : FRAMES_PER_TOKEN * batch.size])[:, :, begin:]

    if "hops" in a:
        outputs = _flow_stream(mel, a["hops"].tolist(), len(tokens), c["lookahead"])
        public = flow.advance([FlowState(prompt)], [tokens], [True])[0][0]
        # Not every processor's normal numbers have the same last bits.
        torch.testing.assert_close(public, outputs["whole"][0], atol=1e-5, rtol=0.0)
        return {name: value.numpy() for name, value in outputs.items()}
    x, mu, speaker, condition, t = (
        torch.from_numpy(a[name]) for name in ("est_x", "est_mu", "est_spks", "est_cond", "est_t")
    )
    masks = [attention_bias(None, x.shape[2], chunk, x) for chunk in (0, c["chunk_mel"])]
    full, chunked = (flow.estimator(x, mu, speaker, condition, t, mask) for mask in masks)
    return {
        "pre_full": conditions(True),
        "pre_ctx": conditions(False),
        "est_full": full.numpy(),
        "est_stream": chunked.numpy(),
        "mel_stream_final": mel(len(tokens), True).numpy(),
        "mel_stream_notfinal": mel(int(a["n_unaligned"]), False).numpy(),
    } | (
        {
            "mel_full": mel(len(tokens), True, streaming=False).numpy(),
            "mel_stream_aligned": mel(int(a["n_aligned"]), False).numpy(),
        }
        if "mel_full" in a
        else {}
    )


def _flow_stream(
    mel: Callable[..., Tensor], hops: list[int], count: int, lookahead: int
) -> dict[str, Tensor]:
    outputs, done = {"whole": mel(count, True)}, 0
    for number, hop in enumerate(hops):
        outputs[f"chunk_{number}"] = mel(done + hop + lookahead, False, first=done)
        done += hop
    outputs["chunk_last"] = mel(count, True, first=done)
    chunks = [value for name, value in outputs.items() if name.startswith("chunk")]
    outputs["grid_maxdiff"] = (torch.cat(chunks, dim=2) - outputs["whole"]).abs().max()
    # What the original does at the end, and its Triton models at the start: other frames.
    last = outputs["upstream_last"] = mel(count, True, streaming=False, first=done)
    outputs["upstream_last_maxdiff"] = (last - outputs["chunk_last"]).abs().max()
    early = outputs["offgrid_15"] = mel(15 + lookahead, False)
    begun = outputs["whole"][:, :, : early.shape[2]]
    outputs["offgrid_15_maxdiff"] = (early - begun).abs().max()
    return outputs


HELD, F0_HELD = 8, 3  # frames that the original does not give out, of samples and of f0


def hift_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    vocoder = filled_vocoder(vocoder_config(c), salt, fill)
    mel, noise = torch.from_numpy(a["mel"]), torch.from_numpy(a["noise_f16"]).float()
    f0 = vocoder.f0(mel)
    source = vocoder.source(f0, noise)
    speech = vocoder(mel, source)
    frame, count = vocoder.frame, mel.shape[2]
    if "cuts" in a:
        chunks = _vocoder_stream(vocoder, mel[0], noise, a["cuts"].tolist())
        outputs = {"speech_whole": speech, "source_whole": source[:, None], "f0_whole": f0}
        outputs["prefix_maxdiff"] = (torch.cat(list(chunks.values()), 1) - speech).abs().max()
        return {name: value.numpy() for name, value in (outputs | chunks).items()}
    source_in, f0_in = (torch.from_numpy(a[name]) for name in ("source_in", "f0_in"))
    known = count - F0_HELD
    begun = _vocoder_stream(vocoder, mel[0], noise, [count])["chunk_0"]
    outputs = {
        "f0": f0,
        "source": source[:, None],
        "speech": speech,
        "f0_notfinal": f0[:, :known],
        "source_notfinal": source[:, None, : frame * known],
        "speech_notfinal": begun,
        "source_of_f0_in": vocoder.source(f0_in, noise)[:, None],
        "decode_of_source_in": vocoder(mel, source_in[:, 0]),
    }
    return {name: value.numpy() for name, value in outputs.items()}


def _vocoder_stream(
    vocoder: HiFT, mel: Tensor, noise: Tensor, cuts: list[int]
) -> dict[str, Tensor]:
    """Chunks as the original cuts them: ours give out a few frames earlier."""
    with patch.object(vocoder, "noise", lambda seed, sample: noise[:, sample[0]]):
        state, parts = stream.begin(vocoder, 0), []
        for begin, end in pairwise([0, *cuts, mel.shape[1]]):
            piece, last = mel[:, begin:end], begin == cuts[-1]
            ((samples, state),) = stream.advance(vocoder, [state], [piece], [last])
            parts.append(samples)
    joined = torch.cat(parts)[None]
    edges = [0, *(vocoder.frame * (cut - HELD) for cut in cuts)]
    chunks = {f"chunk_{n}": joined[:, a:b] for n, (a, b) in enumerate(pairwise(edges))}
    return chunks | {"chunk_last": joined[:, edges[-1] :]}

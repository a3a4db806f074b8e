"""Golden cases of the speech LM, its sampling, and text that arrives piece by piece."""

from __future__ import annotations

import numpy as np
import torch

from cosyserve.contracts import Sampling
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.bistream import Bistream
from cosyserve.models.lm.lm import KVCache, SpeechLM
from cosyserve.models.lm.sampling import Rules, nucleus, sample
from tests.golden.weights import Fill, filled_lm, lm_config

Arrays = dict[str, np.ndarray]


class Decoder:
    """One row, fed id by id through the cache; `logp` after what was fed last."""

    def __init__(self, lm: SpeechLM, prompt: list[int], capacity: int) -> None:
        self.lm, self.length = lm, 0
        self.cache = KVCache.empty(lm.config, 1, capacity)
        self.logits = self.feed(prompt)

    def feed(self, ids: list[int]) -> torch.Tensor:
        start = torch.tensor([self.length])
        self.length += len(ids)
        hidden = self.lm.extend(torch.tensor([ids]), start, self.cache, self.length)
        self.logits = self.lm.logits(hidden[:, -1])
        return self.logits

    def speech(self, token: int) -> torch.Tensor:
        return self.feed([self.lm.config.text_vocab + token])


def prompt_ids(config: LMConfig, a: Arrays, *text: str) -> list[int]:
    ids = [i for name in text for i in a[name][0].tolist()]
    speech = [config.text_vocab + i for i in a["prompt_speech"][0].tolist()]
    return [config.sos, *ids, config.task, *speech]


def greedy(decoder: Decoder, steps: int) -> tuple[list[int], list[torch.Tensor], list[float]]:
    ids, logits, margins = [], [], []
    for step in range(steps):
        if step:
            decoder.speech(ids[-1])
        logits.append(decoder.logits[0])
        best = decoder.logits[0].topk(2)
        ids.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
    return ids, logits, margins


def llm_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    config = lm_config(c)
    lm = filled_lm(config, salt, fill)
    prompt = prompt_ids(config, a, "prompt_text", "text")
    if "speech" not in a:
        return _full_size(lm, prompt, a)
    speech = a["speech"][0].tolist()
    hidden = lm(torch.tensor([prompt + [config.text_vocab + i for i in speech]]))[0]
    logp = lm.logits(hidden).log_softmax(-1)
    ahead = torch.tensor([*speech, config.eos])
    predicting = logp[len(prompt) - 1 :]
    top = logp.topk(a["logp_top20"].shape[1])
    chosen = greedy(Decoder(lm, prompt, len(prompt) + 64), len(a["greedy20"]))
    return {
        "hidden": hidden.numpy(),
        "target_logp": predicting[torch.arange(len(ahead)), ahead].numpy(),
        "logp_last4": logp[-4:].numpy(),
        "logp_top20_ids": top.indices.numpy(),
        "logp_top20": top.values.numpy(),
        "logp_sum": logp.sum(-1).numpy(),
        "greedy20": np.array(chosen[0]),
        "greedy_margin": np.array(chosen[2]),
        **_ras_run(lm, a),
    }


def _full_size(lm: SpeechLM, prompt: list[int], a: Arrays) -> Arrays:
    steps = len(a["greedy_ids"])
    ids, rows, margins = greedy(Decoder(lm, prompt, len(prompt) + steps), steps)
    logits = torch.stack(rows)
    top = logits.topk(a["logits_top50"].shape[1])
    return {
        "greedy_ids": np.array(ids),
        "logits_top50_ids": top.indices.numpy(),
        "logits_top50": top.values.numpy(),
        "logits_sum": logits.sum(-1).numpy(),
        "logits_logsumexp": logits.logsumexp(-1).numpy(),
        "logits_first64": logits[:, :64].numpy(),
        "logits_last8": logits[:, -8:].numpy(),
        "greedy_margin": np.array(margins),
    }


def _ras_run(lm: SpeechLM, a: Arrays) -> Arrays:
    """An utterance with given uniforms: no end id in the first 2 steps per text id."""
    config, sampling = lm.config, Sampling()
    rules = Rules.of([sampling])
    text = a["ras_text"][0].tolist()
    prompt = prompt_ids(config, a, "prompt_text", "ras_text")
    decoder = Decoder(lm, prompt, len(prompt) + len(a["ras_u1"]))
    tokens: list[int] = []
    sizes, fallbacks, margins = [], [], []
    for step, (u1, u2) in enumerate(zip(a["ras_u1"], a["ras_u2"], strict=True)):
        forbidden = torch.zeros(config.classes, dtype=torch.bool)
        forbidden[config.eos] = step < 2 * len(text)
        history = torch.tensor([([-1] * sampling.window + tokens)[-sampling.window :]])
        draw = sample(
            decoder.logits,
            history,
            torch.tensor([u1]),
            torch.tensor([u2]),
            forbidden,
            rules,
            sampling.top_k,
        )
        probs = decoder.logits.masked_fill(forbidden, -torch.inf).softmax(-1)
        actual = nucleus(probs, rules, sampling.top_k)
        sizes.append(int(actual.size))
        margins.append(edge_distance(actual.probs[0, : sizes[-1]], u1))
        if draw.repeats >= 1:
            fallbacks.append(step)
            others = decoder.logits.masked_fill(forbidden, -torch.inf)
            others = others.scatter(1, draw.first[:, None], -torch.inf).softmax(-1)
            margins.append(edge_distance(others[0], u2))
        token = int(draw.ids)
        if token >= config.speech_tokens:
            break
        tokens.append(token)
        decoder.speech(token)
    return {
        "ras_tokens": np.array(tokens),
        "ras_nucleus_sizes": np.array(sizes),
        "ras_fallback_steps": np.array(fallbacks),
        "ras_draw_margin_min": np.array(min(margins)),
    }


def edge_distance(weights: torch.Tensor, u: float) -> float:
    edges = weights.double().cumsum(0)
    return float((edges / edges[-1] - u).abs().min())


def ras_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    sampling = Sampling(c["top_p"], c["top_k"], c["win"], c["tau"])
    logits = torch.from_numpy(a["logits_f16"]).float()
    rules = Rules.of([sampling] * len(logits))
    # Written from the left, -1 behind: ours has the newest id last.
    history = torch.tensor(
        [[-1] * (row < 0).sum() + row[row >= 0].tolist() for row in a["history"]]
    )
    forbidden = torch.zeros(logits.shape, dtype=torch.bool)
    forbidden[:, LMConfig().eos] = torch.from_numpy(a["mask_eos"]).bool()
    draw = sample(
        logits,
        history,
        torch.from_numpy(a["u1"]),
        torch.from_numpy(a["u2"]),
        forbidden,
        rules,
        sampling.top_k,
    )
    probs = logits.masked_fill(forbidden, -torch.inf).softmax(-1)
    actual = nucleus(probs, rules, sampling.top_k)
    inside = torch.arange(sampling.top_k) < actual.size[:, None]
    return {
        "nucleus_size": actual.size.numpy(),
        "nucleus_ids": torch.where(inside, actual.ids, -1).numpy(),
        "nucleus_probs": (actual.probs * inside).numpy(),
        "first_choice": draw.first.numpy(),
        "repeats": draw.repeats.numpy(),
        "fallback": (draw.repeats >= sampling.window * sampling.max_repeats).long().numpy(),
        "final": draw.ids.numpy(),
    }


def bistream_case(c: dict, a: Arrays, salt: int, fill: Fill) -> Arrays:
    """Text ids from 100, prompt text from 10, prompt speech from 500."""
    config = LMConfig(speech_tokens=c["eos"])
    streams = [
        Bistream(
            config,
            range(10, 10 + a["prompt_text_len"][case]),
            range(500, 500 + a["prompt_speech_len"][case]),
        )
        for case in range(len(a["text_len"]))
    ]
    return spoken_streams(streams, a)


def spoken_streams(streams: list[Bistream], a: Arrays) -> Arrays:
    """All that is fed to a stub LM, which counts up."""
    calls, kinds, spoken, history = [], [], [], []
    for case, stream in enumerate(streams):
        config = stream.config
        stream.push(range(100, 100 + a["text_len"][case]))
        stream.end()
        tail = 0
        while (ids := stream.feed()) is not None:
            calls.append((case, len(ids)))
            kinds += [_kind(config, i) for i in ids]
            count = len(stream.generated)
            last = config.fill in stream.forbidden
            if last:
                token = config.eos if tail == a["tail_tokens"] else 1000 + count
                tail += 1
            elif stream.forced is not None:
                token = stream.forced
            else:
                token = config.fill if count == a["early_fill_at"][case] else 1000 + count
            if stream.take(token):
                spoken.append((case, token))
        assert stream.finished
        history += [(case, token) for token in stream.generated[:-1]]
    return {
        "call_case": np.array([case for case, _ in calls]),
        "call_len": np.array([length for _, length in calls]),
        "kinds": np.array([kind for kind, _ in kinds]),
        "ids": np.array([i for _, i in kinds]),
        "out_case": np.array([case for case, _ in spoken]),
        "out_tokens": np.array([token for _, token in spoken]),
        "out_all": np.array([token for _, token in history]),
        "all_case": np.array([case for case, _ in history]),
    }


def _kind(config: LMConfig, i: int) -> tuple[int, int]:
    """0 sos, 1 text, 2 speech, 3 task, and the id within its kind."""
    if i < config.text_vocab:
        return 1, i
    if i in (config.sos, config.task):
        return (0, 0) if i == config.sos else (3, 0)
    return 2, i - config.text_vocab

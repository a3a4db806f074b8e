"""What the figures are measured against: goals for one H200, bounds of what is still correct, and
what others reach."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Goal = tuple[str, str, float]  # path in the report, at most or at least, figure
LM_GOALS: list[Goal] = [
    ("lm_step_ms.1", "<=", 0.45),
    ("lm_step_ms.64", "<=", 1.0),
    ("lm_step_ms.256", "<=", 2.0),
    ("prefill_110_ms", "<=", 2.0),
]
GOALS: dict[str, list[Goal]] = {
    "cosyvoice2": [
        *LM_GOALS,
        ("first_chunk_token2wav_ms", "<=", 15.0),
        ("first_audio_ms.p50", "<=", 18.0),
        ("first_audio_ms.p95", "<=", 40.0),
        ("first_audio_http_ms.p50", "<=", 35.0),
        ("http_first_audio_ms.p50", "<=", 20.0),
        ("rtf_1_stream", "<=", 0.03),
        ("streams_32.first_audio_p95_ms", "<=", 120.0),
        ("streams_32.c100", ">=", 0.995),
        ("max_realtime_streams", ">=", 200.0),
        ("http_crowd.200.first_audio_p95_ms", "<=", 120.0),
        ("http_crowd.200.c100", ">=", 0.995),
        ("max_realtime_streams_http", ">=", 320.0),
        ("offline_b64_audio_s_per_s", ">=", 850.0),
        ("warmup_s", "<=", 60.0),
    ],
    "cosyvoice3": [
        *LM_GOALS,
        ("first_audio_ms.p50", "<=", 40.0),
        ("first_audio_http_ms.p50", "<=", 45.0),
        ("streams_32.first_audio_p95_ms", "<=", 150.0),
        ("streams_32.c100", ">=", 0.995),
        ("max_realtime_streams", ">=", 100.0),
        ("offline_b64_audio_s_per_s", ">=", 250.0),
        ("warmup_s", "<=", 60.0),
    ],
    "dit": [
        ("first_chunk_token2wav_ms", "<=", 20.0),
        ("beside.eager_first_chunk_to_ours", ">=", 10.0),
        ("first_audio_ms.p50", "<=", 40.0),
        ("streams_32.first_audio_p95_ms", "<=", 150.0),
        ("streams_32.c100", ">=", 0.995),
        ("max_realtime_streams", ">=", 100.0),
        ("offline_b64_audio_s_per_s", ">=", 250.0),
        ("warmup_s", "<=", 60.0),
    ],
}
# With small tiles, against the plain modules as graphs, in the same run.
SMALL_GOALS: list[Goal] = [
    ("beside.plain_step_to_ours_1", ">=", 2.0),
    ("beside.plain_first_chunk_to_ours", ">=", 1.3),
]
LAWS = {
    "streamed_mel_error": 1e-5,
    "plain_mel_error": 1e-4,
    "streamed_db": -60.0,
    "jump": 1.001,
    "company_logits_error": 1e-5,
    "company_step_error": 1e-2,
    "company_db": -50.0,
    "again_db": -120.0,
    "held_by_leavers": 0.0,
}
# A chi-squared of n degrees has mean n and variance 2n.
CORRECT: dict[str, Callable[[Any], bool]] = {
    "mel_rel_error": lambda error: bool(error <= 2e-2),
    "nan_in_1000": lambda count: bool(count == 0),
    "beside.nan_with_large_weights": lambda count: bool(count == 0),
    "beside.captured_equal": bool,
    "beside.kernels_against_module": lambda found: all(
        value <= (2e-2 if name.startswith("relative") else 0) for name, value in found.items()
    ),
    "beside.laws": lambda found: all(found[name] <= bound for name, bound in LAWS.items()),
    "beside.draws_chi2": lambda found: bool(
        found["chi2"] <= found["freedom"] + 4 * math.sqrt(2 * found["freedom"])
    ),
}
ELSEWHERE = ("CosyError: ", "no time was left")  # what can't be checked on this device, or now
# Not measured by us, for comparison: milliseconds to the first audio of one stream.
OTHERS_FIRST_AUDIO_MS = {
    "cosyvoice2": {
        "CosyVoice2, its own code, eager, on an H200": 4280.0,
        "CosyVoice2, its Triton and TensorRT-LLM, on an L20": 190.0,
    },
    "cosyvoice3": {"CosyVoice3, vLLM-Omni, on an H100": 209.0},
    "dit": {},
}


def compared(report: dict[str, Any]) -> list[str]:
    """A line per goal."""
    lines = []
    goals = SMALL_GOALS if report["kernels"] == "small" else GOALS[report["family"]]
    for path, sign, goal in goals:
        found = _at(report, path)
        told = "not measured" if found is None else f"{found:.4g}"
        within = found is not None and (found <= goal if sign == "<=" else found >= goal)
        lines.append(f"{path:32} {told:>12}  {sign} {goal:<6g} {'yes' if within else 'NO'}")
    first = report["first_audio_ms"]["p50"]
    if first:
        lines += [
            f"first audio of {name}: {other:g} ms, {other / first:.1f} times ours"
            for name, other in OTHERS_FIRST_AUDIO_MS[report["family"]].items()
        ]
    return lines


def incorrect(report: dict[str, Any]) -> list[str]:
    """Checks that were made and failed, or broke down."""
    found = {path: _at(report, path) for path in CORRECT}
    wrong = [
        f"{path}: {value}"
        for path, value in found.items()
        if value is not None and not CORRECT[path](value)
    ]
    reasons = {path: report["failed"].get(path.split(".")[-1]) for path in CORRECT}
    return wrong + [
        f"{path}: {reason}"
        for path, reason in reasons.items()
        if reason and not reason.startswith(ELSEWHERE)
    ]


def _at(report: dict[str, Any], path: str) -> Any:
    value: Any = report
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value

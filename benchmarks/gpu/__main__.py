"""All figures of one GPU, with networks of full size and random weights, in less than 8 minutes.

    python -m benchmarks.gpu [--family FAMILY] [--budget SECONDS] [--only NAME ...] [--json FILE]
                             [--kernels small] [--tiny]

Every figure is measured on its own: one that fails is null and named with its reason. The result
is kept as benchmarks/history/TIME-GPU-FAMILY.json and compared with the goals; the exit status is 1
if something was computed wrongly. `--kernels small` measures the tiles of GPUs with less shared
memory than this one, against the plain modules as graphs. `--tiny` tries the machinery with small
networks, also on a CPU, and keeps nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import checks, lm, speech
from benchmarks.gpu.bench import FAMILIES, Bench
from benchmarks.gpu.bounds import compared, incorrect
from benchmarks.gpu.history import keep, provenance
from benchmarks.gpu.http_crowd import HTTPFigures, http_crowd
from benchmarks.gpu.laws import laws
from benchmarks.gpu.over_http import first_audio_http_ms

BUDGET = 460.0

# In the order of what would be missed most.
FIGURES: dict[str, Callable[[Bench], Any]] = {
    "lm_step_ms": lm.lm_step_ms,
    "prefill_110_ms": lm.prefill_110_ms,
    "first_chunk_token2wav_ms": speech.first_chunk_token2wav_ms,
    "one_stream": speech.one_stream,
    "offline_b64_audio_s_per_s": speech.offline_b64_audio_s_per_s,
    "mel_rel_error": checks.mel_rel_error,
    "captured_equal": checks.captured_equal,
    "kernels_against_module": checks.kernels_against_module,
    "draws_chi2": checks.draws_chi2,
    "laws": laws,
    "roofline": lm.roofline,
    "nan_in_1000": checks.nan_in_1000,
    "first_audio_http_ms": first_audio_http_ms,
    "http_crowd": http_crowd,
    "streams_32": speech.streams_32,
    "first_chunk_eager_ms": speech.first_chunk_eager_ms,
    "transformers_step_ms": lm.transformers_step_ms,
    "max_realtime_streams": speech.max_realtime_streams,
    "nan_with_large_weights": checks.nan_with_large_weights,
    "lm_step_int8_ms": lm.lm_step_int8_ms,
    "int8_agreement": checks.int8_agreement,
    "lm_step_without_kernels_ms": lm.lm_step_without_kernels_ms,
    "first_chunk_without_kernels_ms": speech.first_chunk_without_kernels_ms,
    "lm_loop_ms": lm.lm_loop_ms,
}
# What tells whether small tiles are correct, and worth it.
SMALL_FIGURES = [
    *("lm_step_ms", "lm_step_without_kernels_ms"),
    *("first_chunk_token2wav_ms", "first_chunk_without_kernels_ms"),
    *("kernels_against_module", "mel_rel_error", "captured_equal", "draws_chi2", "laws"),
    *("one_stream", "roofline", "offline_b64_audio_s_per_s"),
]
# Keys of the report; null is not measured.
KEYS: dict[str, Any] = {
    "device": None,
    "torch": None,
    "lm_step_ms": {"1": None, "16": None, "64": None, "128": None, "256": None},
    "prefill_110_ms": None,
    "first_chunk_token2wav_ms": None,
    "first_audio_ms": {"p50": None, "p95": None},
    "first_audio_http_ms": {"p50": None, "p95": None},
    "http_first_audio_ms": {"p50": None, "p95": None},
    "http_stages_ms": {},
    "http_crowd": {},
    "max_realtime_streams_http": None,
    "rtf_1_stream": None,
    "streams_32": {"first_audio_p95_ms": None, "c100": None},
    "max_realtime_streams": None,
    "offline_b64_audio_s_per_s": None,
    "transformers_step_ms": {"1": None, "64": None},
    "warmup_s": None,
    "gpu_memory_gib": None,
    "mel_rel_error": None,
    "nan_in_1000": None,
}


def measure(bench: Bench, names: list[str], asked: Sequence[str] = ()) -> dict[str, Any]:
    """The report: KEYS, then what stands beside them. `asked`: as on the command line."""
    found: dict[str, Any] = json.loads(json.dumps(KEYS))
    beside: dict[str, Any] = {}
    failed: dict[str, str] = {}
    seconds: dict[str, float] = {}
    for name in names:
        begun = time.monotonic()
        if bench.left <= 0:
            failed[name] = "no time was left"
            continue
        try:
            value = FIGURES[name](bench)
        except Exception as error:  # one figure must not take the others along
            failed[name] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        else:
            if isinstance(value, speech.OneStream | HTTPFigures):
                value = vars(value)
                found |= value
            elif name in KEYS:
                found[name] = value
            else:
                beside[name] = value
        seconds[name] = round(time.monotonic() - begun, 2)
        said = failed.get(name) or json.dumps(value)
        sys.stdout.write(f"{name} ({seconds[name]:.1f} s): {said}\n")
        sys.stdout.flush()
        gc.collect()
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()
    beside |= ratios(found, beside)
    return found | {
        "family": bench.family,
        "kernels": bench.kernels,
        **provenance(" ".join(("python -m benchmarks.gpu", *asked))),
        "beside": beside,
        "failed": failed,
        "seconds": seconds,
        "samples": bench.samples,
    }


def ratios(found: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    """Against others on the same device, and against what the device allows."""
    step = found["lm_step_ms"]
    made: dict[str, Any] = {
        f"transformers_step_to_ours_{n}": other / step[n]
        for n, other in found["transformers_step_ms"].items()
        if other and step[n]
    }
    made |= {
        f"plain_step_to_ours_{n}": other / step[n]
        for n, other in beside.get("lm_step_without_kernels_ms", {}).items()
        if step[n]
    }
    chunk = found["first_chunk_token2wav_ms"]
    for ratio, other in (
        ("plain_first_chunk_to_ours", "first_chunk_without_kernels_ms"),
        ("eager_first_chunk_to_ours", "first_chunk_eager_ms"),
    ):
        if chunk and other in beside:
            made[ratio] = beside[other] / chunk
    if step["1"] and "roofline" in beside:
        rate = 1e3 * beside["roofline"]["lm_weights_gb"] / step["1"]
        made["lm_step_gb_per_s"] = rate
        made["lm_step_share_of_copy"] = rate / beside["roofline"]["copy_gb_per_s"]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, default=FAMILIES[0], help="of models")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for all figures")
    parser.add_argument("--only", nargs="+", choices=FIGURES, help="some figures")
    parser.add_argument("--kernels", choices=("auto", "small"), default="auto", help="tiles")
    parser.add_argument("--json", type=Path, help="where else to keep the report")
    parser.add_argument("--tiny", action="store_true", help="small networks; nothing is kept")
    options = parser.parse_args()
    if not (options.tiny or torch.cuda.is_available()):
        sys.exit("torch sees no GPU: try --tiny")
    os.environ["COSYSERVE_KERNELS"] = options.kernels  # of servers that figures start
    deadline = time.monotonic() + options.budget
    bench = Bench(options.tiny, deadline, options.family, options.kernels)
    asked = [f"--family {options.family}", f"--budget {options.budget:g}"]
    if options.kernels != "auto":
        asked += ["--kernels", options.kernels]
    if options.only:
        asked += ["--only", *options.only]
    figures = SMALL_FIGURES if options.kernels == "small" else list(FIGURES)
    report = measure(bench, options.only or figures, asked)
    text = json.dumps(report, indent=1)
    if options.json:
        options.json.write_text(text, "utf-8")
    if not options.tiny:
        keep(report, report["family"] + ("-small" if options.kernels == "small" else ""))
    shown = {key: value for key, value in report.items() if key not in ("samples", "seconds")}
    sys.stdout.write("\n".join((json.dumps(shown, indent=1), *compared(report), "")))
    wrong = incorrect(report)
    if wrong:
        sys.exit("out of bounds: " + "; ".join(wrong))


if __name__ == "__main__":
    main()

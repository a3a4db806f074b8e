"""Checks this implementation against a folder of golden vectors.

    python tests/golden/verify.py DIR [--full] [--tokenizer QWEN2_DIR]

DIR holds `manifest.json` (salt; per case: config, inputs, tolerance of each output), one .npz per
case, and optionally `text_frontend.json`, `cv3text.json` and `tokenizer.json`. Prints a line per
case (case, worst output, its error and tolerance, seconds); exits 1 if an output exceeds its
tolerance or is not computed. Full-size cases run with --full.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # run as a script
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from tests.golden import cv3_case  # noqa: E402
from tests.golden.encoders_case import campplus_case, s3_case  # noqa: E402
from tests.golden.features_case import cosyvoice3_features_case, features_case  # noqa: E402
from tests.golden.fill import fill  # noqa: E402
from tests.golden.flow_case import flow_case, hift_case, step2_case  # noqa: E402
from tests.golden.lm_case import bistream_case, llm_case, ras_case  # noqa: E402

Arrays = dict[str, np.ndarray]
Case = Callable[[dict, Arrays, int, Callable], Arrays]


def _features(config: dict, arrays: Arrays, salt: int, fill: Callable) -> Arrays:
    return features_case(arrays)


def _cosyvoice3_features(config: dict, arrays: Arrays, salt: int, fill: Callable) -> Arrays:
    return cosyvoice3_features_case(arrays)


CASES: dict[str, Case] = {
    "llm": llm_case,
    "ras": ras_case,
    "bistream": bistream_case,
    "flow": flow_case,
    "hift": hift_case,
    "features": _features,
    "s3": s3_case,
    "campplus": campplus_case,
    "step2": step2_case,
    "cv3llm": cv3_case.llm_case,
    "cv3bistream": cv3_case.bistream_case,
    "cv3flow": cv3_case.flow_case,
    "cv3hift": cv3_case.hift_case,
    "cv3features": _cosyvoice3_features,
    "cv3s3": s3_case,
}
# Runs in seconds although it has no smaller size.
ALWAYS = {"campplus_full"}


@dataclass(frozen=True)
class Result:
    case: str
    status: str  # "ok", "FAIL" or "skipped"
    detail: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.status:8}{self.case:16}{self.detail:70}{self.seconds:7.1f} s"


def verify(folder: Path, *, full: bool, tokenizer: Path | None) -> Iterator[Result]:
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    for name, case in sorted(manifest["cases"].items()):
        family, _, size = name.partition("_")
        if size == "full" and not full and name not in ALWAYS:
            yield Result(name, "skipped", "full size: run with --full")
        elif family not in CASES:
            yield Result(name, "FAIL", f"no check for a case of family '{family}'")
        else:
            yield _check(name, CASES[family], case, folder, manifest["salt"])
    yield from _texts(folder, tokenizer)


def _check(name: str, run: Case, case: dict, folder: Path, salt: int) -> Result:
    begun = time.perf_counter()
    with np.load(folder / f"{name}.npz") as file:
        arrays = dict(file)
    with torch.inference_mode():
        actual = run(case["config"], arrays, salt, fill)
    worst, failures = (-1.0, "nothing compared"), []
    for output, tolerance in case["outputs"].items():
        limit = 0.0 if tolerance == "equal" else float(tolerance)
        if output not in actual:
            failures.append(f"{output}: not computed")
            continue
        error = _error(actual[output], arrays[output])
        share = error / limit if limit else (0.0 if error == 0.0 else np.inf)
        worst = max(worst, (share, f"{output}: error {error:.1e}, tolerance {tolerance}"))
        if not share <= 1.0:
            failures.append(f"{output}: error {error:.1e}, tolerance {tolerance}")
    seconds = time.perf_counter() - begun
    if failures:
        return Result(name, "FAIL", "; ".join(failures), seconds)
    return Result(name, "ok", worst[1], seconds)


def _error(actual: np.ndarray, golden: np.ndarray) -> float:
    actual = np.asarray(actual)
    if actual.shape != golden.shape:
        return float("inf")
    if not golden.size:
        return 0.0
    error = np.abs(actual.astype(np.float64) - golden.astype(np.float64)).max()
    return float("inf") if np.isnan(error) else float(error)


def _texts(folder: Path, tokenizer: Path | None) -> Iterator[Result]:
    from tests.golden.text_case import cosyvoice3_result, text_result, tokenizer_result

    if (folder / "text_frontend.json").exists():
        yield Result(
            "text_frontend", *_timed(text_result, folder / "text_frontend.json", tokenizer)
        )
    if (folder / "cv3text.json").exists():
        yield Result("cv3text", *_timed(cosyvoice3_result, folder / "cv3text.json", tokenizer))
    if (folder / "tokenizer.json").exists():
        if tokenizer is None:
            yield Result("tokenizer", "skipped", "needs the real vocabulary: --tokenizer DIR")
        else:
            yield Result(
                "tokenizer", *_timed(tokenizer_result, folder / "tokenizer.json", tokenizer)
            )


def _timed(run: Callable[..., tuple[str, str]], *args: object) -> tuple[str, str, float]:
    begun = time.perf_counter()
    status, detail = run(*args)
    return status, detail, time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--full", action="store_true", help="also run full-size cases (minutes)")
    parser.add_argument("--tokenizer", type=Path, help="folder with Qwen2's vocab.json, merges.txt")
    options = parser.parse_args()
    failed = 0
    for result in verify(options.folder, full=options.full, tokenizer=options.tokenizer):
        print(result, flush=True)
        failed += result.status == "FAIL"
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

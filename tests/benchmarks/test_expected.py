"""What other GPUs should reach is arithmetic, and the docs have what comes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu.expected import CARDS, H200, MEASURED, Card, Measured, Work, first_chunk, table

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def test_a_time_is_a_chain_and_what_bandwidth_and_products_take() -> None:
    h200 = Measured(ms=5.0, copy_gb_per_s=2400, product_tflop_per_s=989)  # half of its bandwidth
    work = Work(gigabytes=2.4, teraflops=0.989)  # 1 ms each
    assert h200.on(H200, work) == pytest.approx(5.0)
    assert h200.on(Card("half the bandwidth", 2400, 989), work) == pytest.approx(6.0)
    assert h200.on(Card("a tenth of the products", 4800, 98.9), work) == pytest.approx(14.0)


def test_a_first_chunk_reads_the_estimator_and_the_voices_prompt_at_each_step() -> None:
    work = first_chunk()
    prompt = 150 * 2.294e-3  # frames, in GB each
    assert work.gigabytes == pytest.approx(1.543 + prompt, abs=0.001)
    assert work.teraflops == pytest.approx(0.1833, abs=0.0001)


def test_the_page_has_the_table() -> None:
    lines = list(table(json.loads(MEASURED.read_text("utf-8"))))
    assert len(lines) == 2 + len(CARDS)
    assert "\n".join(lines) in PAGE.read_text("utf-8")
    assert lines[-1].endswith("| 0.37 ms | 10 ms |")  # what was measured

"""`log.txt` has the original's fields, the tables have its figures."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from cosyserve.bench.offline.log import offline_table, write_log
from cosyserve.bench.offline.pipeline import OfflineTimes
from cosyserve.errors import InputError

FIELDS = [
    "args",
    "data_load_time_seconds",
    "audio_processing_time_in_collator_seconds",
    "speech_tokenization_time_in_collator_seconds",
    "text_tokenization_time_in_collator_seconds",
    "llm_time_seconds",
    "llm_post_processing_time_seconds",
    "token2wav_time_seconds",
    "audio_save_time_seconds",
    "total_audio_duration_seconds",
    "pipeline_time_seconds",
]
TIMES = OfflineTimes(
    1.5, llm_time_seconds=2.25, total_audio_duration_seconds=8.0, pipeline_time_seconds=6.0
)


def test_the_log_has_the_originals_fields(tmp_path: Path) -> None:
    write_log({"batch_size": 4, "output_dir": tmp_path}, TIMES, tmp_path)
    kept = json.loads((tmp_path / "log.txt").read_text())
    assert list(kept) == FIELDS
    assert kept["args"] == {"batch_size": 4, "output_dir": str(tmp_path)}
    assert kept["llm_time_seconds"] == 2.25
    with pytest.raises(InputError, match="can't be written"):
        write_log({}, TIMES, tmp_path / "no")


def test_the_tables_fit_a_terminal() -> None:
    page = io.StringIO()
    rows = [("ours", 16, TIMES), ("trtllm", 1, OfflineTimes())]
    Console(file=page, width=80).print(offline_table(rows))
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in page.getvalue().split("\n")
    ]
    assert ["ours", "16", "1.5", "2.25", "0", "0", "8"] in cells
    assert ["ours", "16", "2.25", "6", "0.75"] in cells
    assert ["trtllm", "1", "0", "0", "–"] in cells
    assert "llm_time_seconds" in page.getvalue()
    assert "total_time_seconds" in page.getvalue()

"""What a run in batches took: `log.txt`, as the original writes it, and tables of runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from cosyserve.bench.offline.pipeline import OfflineTimes
from cosyserve.bench.report.table import number
from cosyserve.errors import InputError

LOG = "log.txt"


def write_log(args: Mapping[str, Any], times: OfflineTimes, folder: Path) -> None:
    """JSON with the original's fields; `args` are the options of the command."""
    data = json.dumps({"args": args, **asdict(times)}, indent=4, default=str)
    try:
        (folder / LOG).write_text(data + "\n", "utf-8")
    except OSError as error:
        raise InputError(f"{folder / LOG} can't be written: {error.strerror}") from error


def offline_table(rows: Sequence[tuple[str, int, OfflineTimes]]) -> RenderableType:
    """The seconds of each stage, and the original's table: a row for each back end and size."""
    stages = Table("backend", "batch size", "prompts", "LLM", "token2wav", "saving", "audio")
    totals = Table("backend", "batch size", "llm_time_seconds", "total_time_seconds", "RTF")
    for table in (stages, totals):
        for column in table.columns[1:]:
            column.justify = "right"
    for backend, size, times in rows:
        seconds = (
            times.data_load_time_seconds,
            times.llm_time_seconds,
            times.token2wav_time_seconds,
            times.audio_save_time_seconds,
            times.total_audio_duration_seconds,
        )
        whole = times.llm_time_seconds, times.pipeline_time_seconds, times.rtf
        stages.add_row(backend, str(size), *map(number, seconds))
        totals.add_row(backend, str(size), *map(number, whole))
    return Group(stages, totals)

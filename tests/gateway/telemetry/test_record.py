"""What a request's line in the log says of its first audio."""

from __future__ import annotations

import pytest

from cosyserve.contracts import Timeline
from cosyserve.gateway.telemetry.record import Record

FIRST = Timeline(planned=0.01, admitted=0.03, first_tokens=0.07, drawn=None, sent=0.15)


def record(*, heard: bool) -> Record:
    record = Record("req", "POST", "/", started=10.0)
    record.take_chunk(FIRST, 10.2, heard=heard)
    record.take_chunk(None, 10.9, heard=True)
    record.first_audio = 0.2
    return record


def test_each_stage_has_its_share() -> None:
    stages = record(heard=True).stages()
    parts = [0.01, 0.02, 0.04, 0.08, 0.05]
    assert list(stages) == ["plan", "slot", "tokens", "chunk", "rest"]
    assert list(stages.values()) == pytest.approx(parts)


def test_nothing_is_told_where_the_first_chunk_was_left_out() -> None:
    assert record(heard=False).stages() == {}
    assert "stages_ms" not in record(heard=False).line(1.0)

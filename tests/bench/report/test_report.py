"""What is kept and shown of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from rich.console import Console, RenderableType

from cosyserve.bench.client import Endpoint
from cosyserve.bench.figures import figures
from cosyserve.bench.items import HubDataset, Manifest, Sentences, Source
from cosyserve.bench.load import ClosedLoop, Load, OpenLoop
from cosyserve.bench.playback import Arrival
from cosyserve.bench.report.plot import write_plot
from cosyserve.bench.report.report import (
    BenchOptions,
    Report,
    read_baseline,
    this_host,
    write_report,
)
from cosyserve.bench.report.table import baseline_table, main_figures, ratios, run_table
from cosyserve.bench.sample import Failure, Sample
from cosyserve.errors import InputError
from cosyserve.version import __version__

SERVED = (
    Sample("a", 0.0, 1.0, (Arrival(0.2, 0.5), Arrival(0.6, 0.5))),
    Sample("b", 0.5, 1.5, (Arrival(0.4, 0.5), Arrival(1.5, 0.5))),
)
FAILED = (
    Sample("c", 0.6, 0.01, (), Failure("HTTP 429", "the queue is full [1]")),
    Sample("d", 0.7, 0.3, (Arrival(0.2, 0.5),), Failure("cut off", "the peer left")),
)


def report(samples: tuple[Sample, ...], **changes: object) -> Report:
    options = BenchOptions(Endpoint(), ClosedLoop(2), Sentences())
    options = replace(options, **changes)  # type: ignore[arg-type]
    found = figures(samples)
    return Report(__version__, "2025-01-01T00:00:00+00:00", options, this_host(), found, samples)


def shown(table: RenderableType) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_figures_are_of_served_requests() -> None:
    found = figures(SERVED + FAILED)
    assert (found.requests, found.served) == (4, 2)
    assert found.failures == {"HTTP 429": 1, "cut off": 1}
    assert found.wall_seconds == 2.0
    assert found.audio_seconds == 2.0
    assert (found.rtf, found.audio_per_second) == (1.0, 1.0)
    assert found.first_audio is not None
    assert found.first_audio.mean == pytest.approx(0.3)
    assert found.second_chunk is not None
    assert found.second_chunk.mean == pytest.approx(0.75)
    assert (found.c50, found.c100, found.c200) == (0.5, 0.5, 0.5)  # b starves for 0.6 s


@given(st.permutations(SERVED + FAILED))
@settings(deadline=None, max_examples=24)
def test_the_order_of_samples_means_nothing(samples: list[Sample]) -> None:
    found, sorted_ = figures(samples), figures(SERVED + FAILED)
    assert main_figures(found) == pytest.approx(main_figures(sorted_))
    assert found.failures == sorted_.failures


@pytest.mark.parametrize(
    ("load", "source"),
    [
        (ClosedLoop(3), Sentences()),
        (OpenLoop(2.5, seed=9), Manifest(Path("list.txt"))),
        (OpenLoop(1.0), HubDataset("someone/speech", "test_en")),
    ],
)
def test_a_report_survives_its_file(tmp_path: Path, load: Load, source: Source) -> None:
    kept = report(SERVED + FAILED, load=load, source=source, save_audio=Path("out"))
    write_report(kept, tmp_path / "run.json")
    again = TypeAdapter(Report).validate_json((tmp_path / "run.json").read_bytes())
    assert again == kept
    assert read_baseline(tmp_path / "run.json") == kept.figures


def test_the_key_is_not_kept(tmp_path: Path) -> None:
    kept = report(SERVED, endpoint=Endpoint(api_key="very-secret"))
    write_report(kept, tmp_path / "run.json")
    assert "very-secret" not in (tmp_path / "run.json").read_text()
    assert "very-secret" not in repr(kept)


def test_ratios_to_a_baseline() -> None:
    faster = tuple(
        Sample(
            s.id, s.sent / 2, s.total / 2, tuple(Arrival(a.at / 2, a.seconds) for a in s.arrivals)
        )
        for s in SERVED
    )
    found = ratios(figures(faster), figures(SERVED))
    assert found["first audio p50 (ms)"] == pytest.approx(0.5)
    assert found["total p95 (ms)"] == pytest.approx(0.5)
    assert found["RTF"] == pytest.approx(0.5)
    assert found["audio seconds per second"] == pytest.approx(2.0)
    assert found["C100"] == pytest.approx(2.0)  # b starves for 0.05 s now
    text = shown(baseline_table(figures(faster), figures(SERVED)))
    assert "first audio p50 (ms)" in text
    assert "0.5" in text


def test_what_was_not_measured_has_no_ratio() -> None:
    assert set(ratios(figures(SERVED), figures(FAILED)).values()) <= {None, 0.0}
    assert "–" in shown(baseline_table(figures(FAILED), figures(SERVED)))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("{}", "figures: Field required"), ("not json", "Invalid JSON"), (None, "can't be read")],
)
def test_a_bad_baseline_is_named(tmp_path: Path, content: str | None, complaint: str) -> None:
    file = tmp_path / "old.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError) as error:
        read_baseline(file)
    assert complaint in str(error.value)
    assert str(file) in str(error.value)


def test_the_table_shows_figures_and_failures() -> None:
    text = shown(run_table(report(SERVED + FAILED)))
    for words in ("first audio", "p99", "300", "50 % / 50 % / 50 %", "HTTP 429"):
        assert words in text
    assert "the queue is full [1]" in text


def test_a_table_of_failures_only() -> None:
    assert "cut off" in shown(run_table(report(FAILED)))


@pytest.mark.parametrize("samples", [SERVED + FAILED, FAILED])
def test_the_plot_is_a_png(tmp_path: Path, samples: tuple[Sample, ...]) -> None:
    write_plot(report(samples), tmp_path / "run.png")
    data = (tmp_path / "run.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) > 5000


def test_a_file_that_can_t_be_written_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "such" / "folder"
    with pytest.raises(InputError, match="can't be written"):
        write_report(report(SERVED), nowhere)

"""Conversations with a real server around a sine engine, in every dialect."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cosyserve.bench.client import Endpoint
from cosyserve.bench.live import DIALECTS, LiveOptions, Talker, run_live
from cosyserve.bench.live.conversation import Turn
from cosyserve.bench.live.report import live_figures
from cosyserve.bench.live.run import sessions_left
from cosyserve.bench.playback import Arrival
from cosyserve.bench.sample import Sample
from cosyserve.cli import main
from cosyserve.errors import InputError
from tests.gateway.serving import Running, serving

KEY = "a-key"
FAST = Talker(400, 600, interrupts=0)
TIMED = ("ours", "contexts", "elevenlabs", "cartesia")  # these tell when words are heard


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(keys=[KEY]) as running:
        yield running


def options(server: Running, talker: Talker = FAST, **fields: object) -> LiveOptions:
    endpoint = Endpoint(server.url, voice=str(fields.pop("voice", "default")), api_key=KEY)
    given = {"conversations": 2, "turns": 2, "concurrency": 2} | fields
    return LiveOptions(endpoint, talker=talker, **given)


def test_all_is_spoken_in_every_dialect(server: Running) -> None:
    server.behave()
    report = asyncio.run(run_live(options(server)))
    assert set(report.figures) == set(DIALECTS)
    for found in report.figures.values():
        turns = found.turns
        assert (turns.requests, turns.served, found.interrupted) == (4, 4, 0), turns.failures
        assert turns.audio_seconds == pytest.approx(4 * len(server.engine.samples) / 24_000)
        assert turns.first_audio
        assert turns.first_audible
        assert turns.c100 == 1.0
    spoken = {" ".join(text.split()) for text in server.engine.texts}
    assert len(spoken) == 4  # the same four texts in each
    assert "The kettle is on, and the cups are already on the table." in spoken
    assert report.left == {}


def test_interruptions_are_confirmed_and_conversations_go_on(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosyserve.bench.live.conversation.MAX_HEARD", 0.2)
    server.behave(chunks=60, chunk_tokens=2, delay=0.02)  # longer than anybody listens
    report = asyncio.run(run_live(options(server, Talker(400, 600, 1.0), turns=2)))
    assert not report.figures["omni"].interrupted  # its clients have no message for that
    for dialect, found in report.figures.items():
        assert found.turns.failures == {}
        if dialect == "omni":
            continue
        assert found.interrupted == 4
        assert found.stop
        assert (found.spoken_error is not None) == (dialect in TIMED)
        # ElevenLabs' clients have no message that stops a text which is complete.
        whole = 4 * len(server.engine.samples) / 24_000
        assert found.turns.audio_seconds < 0.8 * whole or dialect == "elevenlabs"
    assert report.left == {}
    server.wait_until_idle()
    assert server.engine.open_sessions == 0


def test_what_a_server_says_was_heard_is_compared_with_the_whole_speech() -> None:
    def turn(name: str, **fields: Any) -> Turn:
        return Turn(Sample(name, 0.0, 1.0, (Arrival(0.1, 2.0),)), **fields)

    whole = {"a": turn("a", word_ends=(0.5, 1.0, 1.5, 2.0))}
    turns = [
        turn("a", stopped=0.1, heard=1.2, spoken=2),  # as it is
        turn("a", stopped=0.1, heard=1.6, spoken=0),  # three were heard
        turn("a", spoken=4),  # not interrupted
        turn("b", stopped=0.1, heard=1.0, spoken=1),  # not known
        turn("a", stopped=0.1, heard=1.0),  # not told
    ]
    found = live_figures(turns, whole)
    assert found.interrupted == 4
    assert found.spoken_error
    assert found.spoken_error.mean == 1.5


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_voice_that_nobody_has_is_a_failure(server: Running, dialect: str) -> None:
    server.behave()
    asked = options(server, dialects=(dialect,), voice="nobody", conversations=1)
    report = asyncio.run(run_live(asked))
    assert report.figures[dialect].turns.failures == {"error": 1}


def test_a_server_that_wants_another_key(server: Running) -> None:
    endpoint = Endpoint(server.url, api_key="wrong")
    asked = LiveOptions(endpoint, dialects=("ours",), conversations=1)
    report = asyncio.run(run_live(asked))
    assert report.figures["ours"].turns.failures == {"HTTP 401": 1}
    assert report.left is None  # it doesn't tell us


def test_a_server_that_forgets_a_session_is_found_out(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.behave()
    monkeypatch.setattr("cosyserve.bench.live.run.IDLE_SECONDS", 0.1)
    server.engine.open_sessions = 3
    left = asyncio.run(sessions_left(Endpoint(server.url, api_key=KEY)))
    server.engine.open_sessions = 0
    assert left == {"cosyserve_running": 3}


def test_the_command(
    server: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server.behave()
    file = tmp_path / "live.json"
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setattr(
        sys,
        "argv",
        [
            *("cosyserve", "bench", "live", "--url", server.url, "--api-key", KEY),
            *("--dialect", "cartesia", "--conversations", "1", "--turns", "1"),
            *("--words-per-second", "300", "500", "--interrupts", "0", "--json", str(file)),
        ],
    )
    with pytest.raises(SystemExit) as ended:
        main()
    output = capfd.readouterr()
    assert ended.value.code == 0, output.err
    for words in ("cartesia", "first audible audio", "C100", "sessions left: none"):
        assert words in output.out
    written = json.loads(file.read_text("utf-8"))
    assert written["figures"]["cartesia"]["turns"]["served"] == 1
    assert KEY not in file.read_text("utf-8")


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda: LiveOptions(Endpoint(), dialects=("latin",)),
            "no dialect 'latin'",
        ),
        (lambda: LiveOptions(Endpoint(), turns=0), "at least 1"),
        (lambda: Talker(60, 20), "the smaller one first"),
        (lambda: Talker(interrupts=2), "0 to 1"),
    ],
)
def test_nonsense(make: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        make()  # type: ignore[operator]

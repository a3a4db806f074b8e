"""`cosyserve bench offline` and `bench tokens` as a person uses them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.checkpoints.model import Model
from cosyserve.cli import main
from tests.backends.our_lm import serving_lm

Command = Callable[..., str]


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    def run(*words: str, status: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["cosyserve", "bench", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capfd.readouterr()
        assert ended.value.code == status, output.err
        return output.out + output.err

    noise = np.random.default_rng(0).standard_normal(24_000).astype(np.float32) * 0.1
    (tmp_path / "me.wav").write_bytes(encode(noise, AudioFormat.WAV))
    (tmp_path / "list.txt").write_text("a|Words.|me.wav|A sentence.\nb|Words.|me.wav|Another.\n")
    tokens = {"id": "a", "target_audio_cosy2_tokens": list(range(60))}
    (tmp_path / "tokens.jsonl").write_text(json.dumps(tokens))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return run


def test_offline_writes_as_the_original(tmp_path: Path, bench: Command) -> None:
    output = bench(
        *("offline", "--backend", "ours", "--batch-size", "2", "--manifest-path", "list.txt"),
        *("--token2wav-batch-size", "1", "--num-workers", "1", "--prefetch", "2", "--runs", "1"),
        *("--output-dir", "out", "--prompt-speech-path", "me.wav", "--prompt-text", "Words."),
    )
    assert "llm_time_seconds" in output
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"a.wav", "b.wav", "log.txt"}
    log = json.loads((tmp_path / "out" / "log.txt").read_text())
    assert (log["args"]["backend"], log["args"]["batch_size"]) == ("ours", 2)
    heard = sum(len(decode(tmp_path / "out" / name).samples) for name in ("a.wav", "b.wav"))
    assert log["total_audio_duration_seconds"] == pytest.approx(heard / 24_000)


def test_offline_compares_back_ends_and_batch_sizes(
    tmp_path: Path, bench: Command, model: Model
) -> None:
    with serving_lm(model) as server:
        bench(
            *("offline", "--backend", "ours,trtllm-serve", "--batch-size", "2", "--batch-size"),
            *("1", "--manifest-path", "list.txt", "--runs", "1", "--output-dir", "out"),
            *("--openai-api-base", f"{server.url}/chat/completions"),
            *("--openai-model-name", "lm", "--top-p", "0.8", "--top-k", "25"),
            *("--temperature", "1"),
        )
    body = server.bodies[0]
    assert (body["temperature"], body["repetition_penalty"], body["model"]) == (1.0, 1.1, "lm")
    assert "messages" in body
    folders = sorted(folder.name for folder in (tmp_path / "out").iterdir())
    assert folders == ["openai-1", "openai-2", "ours-1", "ours-2"]
    first, *others = (decode(tmp_path / "out" / name / "a.wav").samples for name in folders)
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-3)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--backend", "gpu"), "--backend is one of ours, hf, trtllm, vllm, openai"),
        (("--batch-size", "4,none"), "--batch-size wants"),
        (("--token2wav-batch-size", "0"), "token2wav_batch_size must be at least 1"),
        (("--runs", "0"), "runs must be at least 1"),
        (("--prompt-text", "Words."), "--prompt-speech-path"),
        (("--prompt-speech-path", "no.wav"), "no.wav can't be read"),
        (("--manifest-path", "no.txt"), "no.txt can't be read"),
        (("--language", "de"), "sentences in en and zh"),
        (("--llm-model-name-or-path", "no"), "no: no such folder"),
        (("--backend", "hf"), "--backend hf needs --llm-model-name-or-path"),
        (("--backend", "trtllm", "--llm-model-name-or-path", "lm"), "needs --engine-dir"),
        (("--backend", "openai", "--openai-api-base", "here"), "is no URL of an LLM server"),
        (("--top-p", "2"), "top_p must be in (0, 1]"),
    ],
)
def test_offline_refuses_in_a_sentence(bench: Command, words: tuple[str, ...], says: str) -> None:
    assert says in bench("offline", *words, status=2)


def test_a_folder_of_the_lm_and_one_of_the_rest(
    tmp_path: Path, bench: Command, hugging_face_lm_folder: Path, token2wav_folder: Path
) -> None:
    """`transformers` draws as our LM does, so the speech is the same."""
    bench(
        *("offline", "--token2wav-path", str(token2wav_folder), "--manifest-path", "list.txt"),
        *("--llm-model-name-or-path", str(hugging_face_lm_folder), "--backend", "ours,hf"),
        *("--batch-size", "2", "--runs", "1", "--output-dir", "out"),
    )
    ours, theirs = (decode(tmp_path / "out" / f"{name}-2" / "a.wav") for name in ("ours", "hf"))
    np.testing.assert_allclose(theirs.samples, ours.samples, atol=1e-3)
    alone = bench("offline", "--token2wav-path", str(token2wav_folder), status=2)
    assert "has no speech LM" in alone


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--split-name", "wenetspeech4tts"), "yuekai/seed_tts_cosy2"),
        (("--split-name", "zero_shot_zh"), "yuekai/CV3-Eval"),
        (("--huggingface-dataset", "some/one", "--split-name", "test"), "some/one"),
    ],
)
def test_the_originals_datasets(
    bench: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], name: str
) -> None:
    asked: list[tuple[str, str]] = []

    class Hub:
        @staticmethod
        def load_dataset(name: str, split: str) -> None:
            asked.append((name, split))
            raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "datasets", Hub)
    assert "no network" in bench("offline", *words, status=2)
    assert asked == [(name, words[-1])]


def test_tokens_streamed_and_whole(tmp_path: Path, bench: Command) -> None:
    """As `streaming_inference.py` is called."""
    usual = "tokens", "tokens.jsonl", "--runs", "1", "--model-dir", "test"
    equal = bench(*usual, "--strategy", "equal", "--output-dir", "equal", "--enable-trt")
    bench(*usual, "--strategy", "exponential", "--output-dir", "doubling", "--batch-size", "1")
    whole = bench(*usual, "--whole", "--look-ahead", "3")
    assert row(equal, "all")[1:3] == ["60", "3"]
    assert row(whole, "all")[1:3] == ["60", "1"]
    one, other = (decode(tmp_path / name / "a.wav").samples for name in ("equal", "doubling"))
    np.testing.assert_allclose(one, other, atol=1e-3)


def row(output: str, name: str) -> list[str]:
    rows = ([cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines())
    return next(cells for cells in rows if cells and cells[0] == name)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tokens.jsonl", "--chunk-size", "30"), "--chunk-size must be a multiple of 25, got 30"),
        (("tokens.jsonl", "--chunk-size", "0"), "--chunk-size must be a multiple of 25, got 0"),
        (("tokens.jsonl", "--look-ahead", "5"), "--look-ahead must be 3, got 5"),
        (("tokens.jsonl", "--runs", "0"), "runs must be at least 1"),
        (("no.jsonl",), "no.jsonl can't be read"),
        (("list.txt",), "the last field must be tokens"),
    ],
)
def test_tokens_refuses_in_a_sentence(bench: Command, words: tuple[str, ...], says: str) -> None:
    assert says in bench("tokens", *words, status=2)

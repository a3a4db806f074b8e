"""The command as a person uses it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cosyserve.audio import decode
from tests.cli.commands import Command

PLAN = ("--gpu", "l20", "--streams", "1", "--first-audio-ms", "300")
INTO = ("--save-audio", "a/b", "--json", "a/b/x.json", "--plot", "a/x.png")
STAGES = ("deploy", "run", "--stage", "0", "--stop-stage", "6", "--dry-run")
APART = ("--lm-device", "cpu", "--token2wav-device", "cpu")


def test_say_writes_speech_and_tells_its_figures(home: Path, cosyserve: Command) -> None:
    run = cosyserve("say", "Hello there.", "-o", "out.flac")
    assert "test model: not speech" in run.stderr
    assert "first audio after" in run.stderr
    assert "RTF" in run.stderr
    assert decode(home / "out.flac").rate == 24_000
    assert [f.name for f in home.iterdir() if f.name.startswith(".")] == []


def test_standard_input_to_standard_output(home: Path, cosyserve: Command) -> None:
    run = cosyserve("say", "-", "-o", "-", "--format", "pcm", stdin="Hello there.")
    assert len(run.stdout) % (2 * 960) == 0
    assert len(run.stdout) > 10_000


def test_closed_standard_streams_are_no_crash(
    cosyserve: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    run = cosyserve("say", "Hello there.", "-o", "-", status=2)
    assert "standard output, which is closed: name a file" in run.stderr
    run = cosyserve("say", "-", "-o", "out.wav", status=2, stdin=None)
    assert "nothing to say" in run.stderr


def test_say_writes_into_a_pipe(home: Path, cosyserve: Command) -> None:
    pipe = home / "pipe.wav"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        cosyserve("say", "Hello there.", "-o", "pipe.wav")
        heard, _ = reader.communicate(timeout=60)
    assert heard.startswith(b"RIFF")
    assert pipe.is_fifo()


def test_say_writes_what_a_link_leads_to(home: Path, cosyserve: Command) -> None:
    (home / "old.wav").write_bytes(b"old")
    (home / "link.wav").symlink_to("old.wav")
    cosyserve("say", "Hello there.", "-o", "link.wav")
    assert (home / "link.wav").is_symlink()
    assert decode(home / "old.wav").rate == 24_000


def test_say_without_a_file_is_heard(home: Path, cosyserve: Command) -> None:
    run = cosyserve("say", "Hello there.")
    assert "played with paplay: first audio after" in run.stderr
    heard = (home / "bin" / "heard.pcm").read_bytes()
    assert heard == cosyserve("say", "Hello there.", "-o", "-", "--format", "pcm").stdout
    assert not (home / "out.wav").exists()


def test_say_tells_why_nothing_is_heard(
    home: Path, cosyserve: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "of a file" in cosyserve("say", "Hi.", "--format", "wav", status=2).stderr
    (home / "bin" / "paplay").write_text("#!/bin/sh\necho 'no sound card' >&2\nexit 1\n")
    run = cosyserve("say", "Hi.", status=2)
    assert "paplay can't play: no sound card; write a file instead: -o out.wav" in run.stderr
    monkeypatch.setenv("PATH", str(home / "nowhere"))
    assert "nothing on this machine plays audio" in cosyserve("say", "Hi.", status=2).stderr


def test_the_examples_of_say_work(home: Path, cosyserve: Command) -> None:
    shown = cosyserve("say", "--help").stdout.decode().splitlines()
    examples = [line.strip() for line in shown if 'cosyserve say "' in line or 'echo "' in line]
    assert len(examples) == 3
    for example in examples:
        piped, _, command = example.rpartition("| ")
        words = shlex.split(command)[1:]
        cosyserve(*words, stdin="".join(shlex.split(piped)[1:]))
        if "-o" in words:
            assert decode(home / words[-1]).rate == 24_000


def test_streamed_and_whole_have_the_same_length(home: Path, cosyserve: Command) -> None:
    for name, option in (("a", "--stream"), ("b", "--no-stream")):
        cosyserve("say", "Hello there.", "-o", f"{name}.wav", option, "--seed", "5")
    assert len(decode(home / "a.wav").samples) == len(decode(home / "b.wav").samples)


def test_normalization_is_switched_off_in_both_spellings(cosyserve: Command) -> None:
    spoken, plain, old = (
        cosyserve("say", "12", "-o", "-", "--format", "pcm", option).stdout
        for option in ("--normalize", "--no-normalize", "--no-normalise")
    )
    assert plain == old != spoken


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["say", "..."], "nothing to say"),
        (["say", "Hi.", "--speed", "9"], "speed"),
        (["say", "Hi.", "-o", "a.xyz"], "unknown suffix"),
        (["say", "Hi.", "-o", ""], "-o is empty: name a file"),
        (["say", "Hi.", "-o", ".", "--format", "wav"], "can't be written: Is a directory"),
        (["say", "Hi.", "-o", "no/such/folder/a.wav"], "can't be written"),
        (["say", "Hi.", "--model", "test,nano"], "--model test,nano: give one model"),
        (["say", "Hi.", "--model", "nowhere"], "no such folder"),
        (["say", "Hi.", "--model", "nope[/x]"], "nope[/x]: no such folder"),
        (["say", "Hi.", "--model", "[red]a[/red] :key:"], "[red]a[/red] :key:: no such folder"),
        (["voice", "add", "bob", "[/b].wav"], "[/b].wav is not a file"),
        (["say", "Hi.", "--voice", "nobody"], "no voice named 'nobody'"),
        (["say", "Hi.", "--voice", "nobody.wav"], "no such file"),
        (["say", "Hi.", "--voice", "../../etc"], "no such file"),
        (["say", "Hi.", "--device", "cuda:99"], "CUDA devices"),
        (["say", "Hi.", "--device", "meta"], "--device: unknown device 'meta': use auto, cpu"),
        (["serve", "--device", "cpu", "--device", "meta"], "--device: unknown device 'meta'"),
        (["serve", "--triton", "--device", "cuda:99"], "CUDA devices"),
        (["say", "Hi.", "--rate", "77", "-o", "a.opus"], "77"),
        (["say", "Hi.", "--mode", "instruct"], "instruction"),
        (["say", "Hi.", "--mode", "preset", "--instruct", "Slowly."], "leave out one"),
        (["say", "Hi.", "--source", "me.wav"], "--source is spoken: leave out the text"),
        (["say", "Hi.", "--voice-text", "Words."], "the words of a recording"),
        (["voice", "add", "a/b", "me.wav"], "can't be a voice's name"),
        (["voice", "import", "me.wav"], "not a speaker file"),
        (["prepare", "nowhere", "--out", "x"], "neither a folder nor a Hub name"),
        (["prepare", ".", "--out", "x"], "not a model folder"),
        (["prepare", ".", "--out", "."], "exists already"),
        (["prepare", ".", "--out", "x", "--dtype", "int3"], "dtype"),
        (["voice", "add", "default", "me.wav"], "take another name"),
        (["voice", "list", "--voice-store", "redis://host:port"], "not the URL of a Redis server"),
        (["voice", "list", "--voice-store", "http://a"], "no voices are kept at http://: give a"),
        (["voice", "list", "--voice-store", "me.wav"], "me.wav: voices are kept in a folder"),
        (["serve", "--voice-store", "me.wav"], "me.wav: voices are kept in a folder"),
        (["deploy", "plan", "--gpus", "999999999", *PLAN], "Invalid value for '--gpus'"),
        ([*STAGES, "--batch-size", "-1"], "Invalid value for '--batch-size'"),
        ([*STAGES, "--http-port", "8", "--grpc-port", "8", "--metrics-port", "8"], "different"),
        (["client", "grpc", "--server-port", "99999999"], "Invalid value for '--server-port'"),
        (["bench", "load", "--manifest", "empty"], "nothing to say in the manifest empty"),
        (["bench", "load", "--json", "no/x.json"], "--json no/x.json: there is no folder no"),
        (["bench", "load", "--json", "kept"], "--json kept: this is a folder, name a file"),
        (["bench", "offline", "--batch-size", "9" * 5000], "whole numbers from 1 to 9999"),
        (["client", "http", "--output-audio", "no/x.wav"], "there is no folder no"),
        (["bench", "load", "--plot", "no/x.png"], "--plot no/x.png: there is no folder no"),
        (["bench", "live", "--json", "no/x.json"], "--json no/x.json: there is no folder no"),
        (["bench", "load", "--manifest", "nowhere", *INTO], "the manifest nowhere can't be read"),
        (["say", "Hi.", "--dtype", "int4"], "--dtype"),
        (["serve", "--lm-device", "cpu"], "together"),
        (["serve", "--api-key", "a key", "--api-key", " "], "--api-key is empty: give a key"),
        (["serve", *APART, "--device", "cpu"], "and no --device"),
        (["serve", "--profile", "speed"], "--profile"),
        (["serve", "--port", "70000"], "--port: Input should be less than or equal to 65535"),
        (["serve", "--engine", "triton://a:1", "--model", "test"], "leave out --engine"),
        (["serve", "--engine", "triton://a:1", "--device", "cpu"], "leave out --engine"),
        (["serve", "--engine", "triton://a:1", "--profile", "throughput"], "leave out --engine"),
        (["serve", "--triton", "--profile", "throughput"], "--profile is not for --triton"),
        (["serve", "--triton", "--device", "cpu", "--device", "cpu"], "on one --device"),
        (["serve", "--triton", "--default-voice", "carl"], "'carl': there is no such voice"),
        (["serve", "--default-voice", "carl"], "'carl': there is no such voice; known: none yet"),
        (["deploy", "start", "nowhere"], "nowhere: no such folder"),
        (["deploy", "start", "kept"], "kept: holds no model"),
        (["deploy", "start", "n" * 300], "can't be read: File name too long"),
        (["deploy", "triton", "--check", "n" * 300], "can't be read: File name too long"),
        (["say", "Hi.", "--voice", "n" * 300 + ".wav"], "no such file, or none that may be read"),
        (["voice", "add", "anna", "n" * 300], "can't be read: File name too long"),
        (["deploy", "start", ".", "--http-port", "0"], "--http-port must be 1..65535, got 0"),
        (["deploy", "start", ".", "--", "--grpc-port=9"], "--grpc-port=9: ports are given before"),
        (["serve", "--engine", "localhost"], "write triton://HOST:8001"),
        (["serve", "--set", "slots=1"], "--set is for --triton"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(
    home: Path, cosyserve: Command, words: list[str], message: str
) -> None:
    (home / "kept").mkdir()
    (home / "empty").touch()
    before = {f.name for f in home.iterdir()}
    run = cosyserve(*words, status=2)
    assert message in run.stderr
    assert {f.name for f in home.iterdir()} == before


def test_a_reader_that_leaves_is_no_crash(home: Path) -> None:
    text = "A sentence that is long enough to fill a pipe."
    script = f"{sys.executable} -m cosyserve say '{text}' -o - --format pcm | head -c 10"
    run = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    assert len(run.stdout) == 10
    assert b"Traceback" not in run.stderr


@pytest.mark.parametrize(
    "words",
    ["--help", "--version", "voice show anna", "deploy compose", "say Hi. --model test -o -"],
)
def test_output_that_can_not_be_written_is_one_sentence(
    home: Path, cosyserve: Command, words: str
) -> None:
    if "anna" in words:
        cosyserve("voice", "add", "anna", "me.wav")
    script = f"ulimit -f 0; {sys.executable} -m cosyserve {words} > out"
    run = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == b"error: standard output can't be written: File too large"
    assert b"Traceback" not in run.stderr


def test_prepare_then_speak(cosyserve: Command, cosyvoice2_folder: Path) -> None:
    cosyserve("prepare", str(cosyvoice2_folder), "--out", "native", "--dtype", "bfloat16")
    again = cosyserve("prepare", str(cosyvoice2_folder), "--out", "native", status=2)
    assert "exists already" in again.stderr
    options = ["--model", "native", "--voice", "me.wav", "--voice-text", "hello"]
    cosyserve("say", "hello world", *options, "-o", "out.wav")
    assert cosyserve("doctor", "--model", "native").stdout.count(b" ok ") > 10


def test_doctor_names_what_is_missing(cosyserve: Command, hugging_face_lm_folder: Path) -> None:
    run = cosyserve("doctor", "--model", str(hugging_face_lm_folder), status=1)
    assert b"no flow" in run.stdout
    assert (
        "File name too long" in cosyserve("doctor", "--model", "n" * 300, status=1).stdout.decode()
    )


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (("bench", "load"), "httpx", "bench"),
        (("serve", "--port", "0"), "uvicorn", "server"),
        (("serve", "--port", "0"), "uvloop", "server"),
        (("deploy", "triton", "--model", "test", "--out", "repo"), "tritonclient", "triton"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    home: Path, words: tuple[str, ...], package: str, extra: str
) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from cosyserve.cli import main; main()"
    command = [sys.executable, "-c", code, *words]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.strip().endswith(f"pip install 'cosyserve[{extra}]'")

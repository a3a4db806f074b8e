from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from cosyserve.errors import CosyError
from cosyserve.text import number_process
from cosyserve.text.language import Language
from cosyserve.text.number_process import FairLock, NumberProcess, serve_requests
from cosyserve.text.numbers import read_numbers


@pytest.fixture(scope="module")
def reader() -> Iterator[NumberProcess]:
    process = NumberProcess()
    yield process
    process.close()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("1999", Language.ENGLISH),
        ("$5.20", Language.ENGLISH),
        ("2024年3月", Language.CHINESE),
        ("no number", Language.ENGLISH),
        ("", Language.ENGLISH),
    ],
)
def test_it_reads_as_the_grammars_do(reader: NumberProcess, text: str, language: Language) -> None:
    assert reader(text, language) == read_numbers(text, language)


def test_what_the_grammars_refuse_is_refused(reader: NumberProcess) -> None:
    refused = "1\ud800"
    with pytest.raises(Exception) as here:  # noqa: PT011 - whatever it is, it is the same there
        read_numbers(refused, Language.ENGLISH)
    with pytest.raises((AssertionError, CosyError)):
        reader(refused, Language.ENGLISH)
    assert here.value
    assert reader("12", Language.ENGLISH) == read_numbers("12", Language.ENGLISH)


def test_a_killed_process_is_replaced_unseen(reader: NumberProcess) -> None:
    reader("100", Language.ENGLISH)
    assert reader._process
    os.kill(reader._process.pid, signal.SIGKILL)
    assert reader("101", Language.ENGLISH) == read_numbers("101", Language.ENGLISH)


def test_a_number_that_kills_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def deadly() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "input()"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(number_process, "_start", deadly)
    with pytest.raises(CosyError, match="write it in words"):
        NumberProcess()("7", Language.ENGLISH)


def test_what_is_wrong_with_the_grammars_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As here, and the process goes on."""

    def unread(text: str, language: Language) -> str:
        raise CosyError("install another wetext")

    def answered(_: NumberProcess, request: str) -> str:
        replies = io.StringIO()
        serve_requests(io.StringIO(request), replies)
        return replies.getvalue()

    monkeypatch.setattr(number_process, "read_numbers", unread)
    monkeypatch.setattr(NumberProcess, "_exchange", answered)
    with pytest.raises(CosyError, match="install another wetext"):
        NumberProcess()("7", Language.ENGLISH)


def test_a_number_that_takes_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck() -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    monkeypatch.setattr(number_process, "_start", stuck)
    monkeypatch.setattr(number_process, "TIMEOUT_SECONDS", 0.05)
    with pytest.raises(CosyError, match="write it in words"):
        NumberProcess()("7", Language.ENGLISH)


def test_this_process_goes_on_meanwhile(reader: NumberProcess) -> None:
    """The grammars themselves would hold Python's lock for 10 ms at a time."""
    numbers = [str(3000 + number) for number in range(40)]
    for language in (Language.ENGLISH, Language.CHINESE):
        reader("1", language)
    thread = threading.Thread(target=lambda: [reader(n, Language.ENGLISH) for n in numbers])
    turns = 0
    thread.start()
    begun = time.process_time()
    while thread.is_alive():
        time.sleep(0.0005)
        turns += 1
    assert turns > 40
    assert time.process_time() - begun < 0.2  # of the 0.3 s that it took elsewhere


def test_after_its_end_it_starts_nothing() -> None:
    reader = NumberProcess()

    def read() -> None:
        with contextlib.suppress(CosyError):
            for number in range(4000, 4400):
                reader(str(number), Language.ENGLISH)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    time.sleep(0.3)
    reader.close()
    reading.join(10)
    assert not reading.is_alive()
    assert reader._process is None


def test_those_who_wait_take_turns() -> None:
    lock, order = FairLock(), list[str]()

    def read(name: str, numbers: int) -> None:
        for _ in range(numbers):
            with lock:
                order.append(name)
                time.sleep(0.002)

    threads = [threading.Thread(target=read, args=(name, 20)) for name in "ab"]
    threads.append(threading.Thread(target=read, args=("victim", 1)))
    with lock:
        for thread in threads:
            waiting = len(lock._queue)
            thread.start()
            while len(lock._queue) == waiting:
                time.sleep(0.001)
    for thread in threads:
        thread.join(10)
    assert order[:3] == ["a", "b", "victim"]
    assert order[3:] == ["a", "b"] * 19

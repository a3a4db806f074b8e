"""Numbers read aloud in a process of their own.

A grammar holds Python's lock for 10 ms a number: in a thread it would slow every step of those
who speak. Run as a module, this file is the process.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections import deque
from functools import lru_cache
from typing import IO

from cosyserve.errors import CosyError
from cosyserve.text.language import Language
from cosyserve.text.numbers import read_numbers

TIMEOUT_SECONDS = 5.0  # of one stretch of text; the longest take tenths
CACHED_STRETCHES = 4096


class FairLock:
    """A lock that those who wait get in the order of their coming, so that the many numbers of one
    text and the one of another take turns."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._queue: deque[threading.Event] = deque()  # the first has the lock

    def __enter__(self) -> None:
        turn = threading.Event()
        with self._mutex:
            self._queue.append(turn)
            if self._queue[0] is turn:
                turn.set()
        turn.wait()

    def __exit__(self, *error: object) -> None:
        with self._mutex:
            self._queue.popleft()
            if self._queue:
                self._queue[0].set()


class NumberProcess:
    """A `text.numbers.Reader` for several threads. Its process starts when it is needed."""

    def __init__(self) -> None:
        self._lock = FairLock()
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        self._read_cached = lru_cache(CACHED_STRETCHES)(self._read)

    def __call__(self, text: str, language: Language) -> str:
        if not any(letter.isdigit() for letter in text):
            return text
        return self._read_cached(text, language)

    def close(self) -> None:
        """Ends the process, and with it what it reads at this moment."""
        self._closed = True
        if self._process:
            self._process.kill()
        with self._lock:
            self._end()

    def _read(self, text: str, language: Language) -> str:
        request = json.dumps([text, language]) + "\n"
        with self._lock:
            reply = self._exchange(request) or self._exchange(request)
        if not reply:
            raise CosyError("the text holds a number that can't be read: write it in words")
        words: str | None
        words, error = json.loads(reply)
        if error:
            raise CosyError(error)
        if words is None:
            raise AssertionError("the grammar has no path through the text")
        return words

    def _exchange(self, request: str) -> str:
        """The reply, in JSON; "" when the process died of the request, or is stuck."""
        if self._closed:
            return ""
        process = self._process = self._process or _start()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(request)
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_SECONDS)
            reply = process.stdout.readline() if ready else ""
        except OSError:
            reply = ""
        if not reply:
            self._end()
        return reply

    def _end(self) -> None:
        process, self._process = self._process, None
        if process:
            process.kill()
            process.communicate()


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is not for it: it ends when its input does
    )


def serve_requests(requests: IO[str], replies: IO[str]) -> None:
    """The process: reads the numbers of each request until there are no more."""
    for request in requests:
        text, language = json.loads(request)
        words, told = None, ""
        try:
            words = read_numbers(text, Language(language))
        except AssertionError:  # the grammar has no path through the text
            pass
        except CosyError as error:
            told = str(error)
        print(json.dumps([words, told]), file=replies, flush=True)


if __name__ == "__main__":
    os.nice(5)  # where the processor is short, speech that is under way goes first
    serve_requests(sys.stdin, sys.stdout)

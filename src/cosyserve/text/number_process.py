"""Numbers read aloud in a process of their own.

A grammar holds Python's lock for 10 ms a number: in a thread it would slow every step of those
who speak. Knows no request. Run as a module, this file is the process.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
from functools import lru_cache
from typing import IO

from cosyserve.errors import CosyError
from cosyserve.text.language import Language
from cosyserve.text.numbers import read_numbers

SECONDS = 5.0  # for one stretch of text; the longest take tenths
REMEMBERED = 4096


class NumberReader:
    """Implements `text.numbers.Reader`, for several threads. Its process starts when needed."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        self._remembered = lru_cache(REMEMBERED)(self._ask)

    def __call__(self, text: str, language: Language) -> str:
        if not any(letter.isdigit() for letter in text):
            return text
        return self._remembered(text, language)

    def close(self) -> None:
        """Ends the process, and whatever it is asked at this moment with it."""
        self._closed = True
        if self._process:
            self._process.kill()
        with self._turn:
            self._end()

    def _ask(self, text: str, language: Language) -> str:
        question = json.dumps([text, language]) + "\n"
        with self._turn:
            answer = self._exchange(question) or self._exchange(question)
        if not answer:
            raise CosyError("the text holds a number that can't be read: write it in words")
        words: str | None = json.loads(answer)
        if words is None:
            raise AssertionError("the grammar has no path through the text")
        return words

    def _exchange(self, question: str) -> str:
        """The answer, in JSON; "" when the process died of the question, or is stuck."""
        if self._closed:
            return ""
        process = self._process = self._process or _start()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(question)
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], SECONDS)
            answer = process.stdout.readline() if ready else ""
        except OSError:
            answer = ""
        if not answer:
            self._end()
        return answer

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


def answer_questions(questions: IO[str], answers: IO[str]) -> None:
    for question in questions:
        text, language = json.loads(question)
        try:
            words: str | None = read_numbers(text, Language(language))
        except AssertionError:
            words = None
        print(json.dumps(words), file=answers, flush=True)


if __name__ == "__main__":
    answer_questions(sys.stdin, sys.stdout)

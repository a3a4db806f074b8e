"""What a worker says: at once where the link takes it, else by a thread.

To wake a thread costs a listener up to a millisecond, for it shares Python with a scheduler that
goes on. But a link may be full, and nobody else's speech must wait for it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from cosyserve.engine.workers.messages import FromWorker, frame

ALIVE_SECONDS = 2.0  # between two signs of life: a gateway gives up a worker that is silent
LAST_WORDS_SECONDS = 1.0  # for what is still to be sent at the end


class Outbox:
    """Messages leave in the order in which they were put, from any thread."""

    def __init__(
        self,
        link: socket.socket,
        broken: Callable[[], None],
        sign_of_life: Callable[[], FromWorker | None],
    ) -> None:
        """`broken` is called once the far end has gone, `sign_of_life` now and then: what to say,
        if anything."""
        self._link, self._broken, self._sign_of_life = link, broken, sign_of_life
        self._turn = threading.Lock()
        self._left: SimpleQueue[memoryview | None] = SimpleQueue()  # by others; None: no more
        self._behind = 0  # of those, the ones that are not sent yet
        self._thread = threading.Thread(target=self._send_left, name="speak", daemon=True)
        self._thread.start()

    def put(self, message: FromWorker) -> None:
        data = memoryview(frame(message))
        with self._turn:
            if not self._behind:
                data = data[self._send_now(data) :]
            if data:
                self._behind += 1
                self._left.put(data)

    def close(self) -> None:
        """What was put is sent, if the far end still takes it."""
        self._left.put(None)
        self._thread.join(LAST_WORDS_SECONDS)

    def _send_now(self, data: memoryview) -> int:
        """How many bytes the link takes without waiting."""
        try:
            return self._link.send(data, socket.MSG_DONTWAIT)
        except OSError:  # it is full; or broken, which the thread will see
            return 0

    def _next(self) -> memoryview | None:
        while True:
            try:
                return self._left.get(timeout=ALIVE_SECONDS)
            except Empty:
                if sign := self._sign_of_life():
                    self.put(sign)

    def _send_left(self) -> None:
        try:
            while (data := self._next()) is not None:
                self._link.sendall(data)
                with self._turn:
                    self._behind -= 1
        except OSError:
            self._broken()

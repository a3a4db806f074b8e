"""Whatever clients send in whatever order, no session is left, and the connection goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.dialects.twin import Twin, dialed
from tests.gateway.dialects.twins import TWINS
from tests.gateway.serving import Running
from tests.waiting import wait_until

Act = Callable[[Twin], None]

MESSAGES: dict[str, Act] = {
    "start": lambda twin: twin.start(),
    "nobody": lambda twin: twin.start(voice="nobody"),
    "text": lambda twin: twin.text("Hello. "),
    "blank": lambda twin: twin.text(" "),
    "long": lambda twin: twin.text("x" * 3000),
    "end": lambda twin: twin.end(),
    "cancel": lambda twin: twin.cancel(),
    "no json": lambda twin: twin.socket.send("{"),
    "binary": lambda twin: twin.socket.send(b"\0"),
    "no message": lambda twin: twin.send({"type": "nothing", "context_id": twin.name}),
    "flush": lambda twin: twin.flush(),
}
acts = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(sorted(MESSAGES)), st.booleans()),
    max_size=25,
)


def send_and_hear(twin: Twin, conversation: list[tuple[str, str, bool]]) -> None:
    for name, message, listens in conversation:
        twin.name = name
        MESSAGES[message](twin)
        if listens:
            with suppress(TimeoutError):
                twin.hear_next(timeout=0.002)


def wait_until_over(server: Running, twin: Twin) -> None:
    """Until all that was sent is read, as the refusal of the last message tells, and every stream
    that was ended is forgotten."""
    twin.socket.send('{"marker')
    while isinstance(item := twin.hear_next(), bytes) or "column 8" not in twin.error(item):
        pass
    wait_until(
        lambda: (
            not any(
                stream.ended or stream.speaking
                for connection in tuple(server.app.state.connections._open)
                for stream in tuple(getattr(connection, "streams", {}).values())
            )
        )
    )


@pytest.mark.parametrize("kind", TWINS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=acts, leaves=st.booleans(), finish=st.sampled_from(["stop", "length"]))
def test_any_order(
    server: Running,
    kind: type[Twin],
    conversation: list[tuple[str, str, bool]],
    leaves: bool,
    finish: str,
) -> None:
    server.behave(chunks=3, chunk_tokens=2, first_delay=0.0005, delay=0.0005, finish=finish)
    with dialed(server, kind) as twin:
        send_and_hear(twin, conversation)
        if not leaves:
            for name in "abc":
                twin.name = name
                twin.cancel()
            wait_until_over(server, twin)
            server.engine.finish = "stop"
            twin.name = "last"
            twin.start()
            twin.text("And now?")
            twin.end()
            while not any("And now?" in text for text in server.engine.texts):
                twin.hear_next()
    server.wait_until_idle()
    wait_until(lambda: not server.app.state.connections.count)

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.page.chromium import PROGRAM, PROGRAMS, Browser, Page, chromium
from tests.gateway.serving import Running

# What the page has scheduled to be heard, without a word about it in the page itself.
LISTEN = """
window.scheduled = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (at) {
  const peak = this.buffer.getChannelData(0).reduce((most, sample) => Math.max(most, sample));
  window.scheduled.push({ at, seconds: this.buffer.duration, peak });
  return start.call(this, at);
};
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not PROGRAM:
        pytest.skip(f"none of {', '.join(PROGRAMS)} is installed")
    with chromium() as running:
        yield running


@pytest.fixture
def page(server: Running, browser: Browser) -> Iterator[Page]:
    """The page in a browser of its own; its console has to stay silent, but for refusals."""
    with browser.page(server.url, before=LISTEN) as opened:
        opened.wait_for("document.querySelector('#voice').options.length")
        yield opened
        refused = "Failed to load resource: the server responded with a status of "
        assert [fault for fault in opened.faults if not fault.startswith(refused)] == []

"""What is downloaded is there whole or not at all, once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread

import pytest

from cosyserve.deploy.download import download
from cosyserve.errors import CheckpointError


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of a server with the file spk2info.pt."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "spk2info.pt").write_bytes(bytes(range(256)) * 9000)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "web"))
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.server
def test_a_file(url: str, tmp_path: Path) -> None:
    to = tmp_path / "CosyVoice2-0.5B" / "spk2info.pt"
    assert download(f"{url}/spk2info.pt", to, progress=False)
    assert to.read_bytes() == (tmp_path / "web" / "spk2info.pt").read_bytes()
    to.write_bytes(b"mine")
    assert not download(f"{url}/spk2info.pt", to, progress=False)
    assert to.read_bytes() == b"mine"


@pytest.mark.server
def test_a_file_that_is_not_there(url: str, tmp_path: Path) -> None:
    to = tmp_path / "model" / "spk2info.pt"
    with pytest.raises(CheckpointError, match=rf"{url}/none .*status 404.* put it at {to}"):
        download(f"{url}/none", to, progress=False)
    assert list(to.parent.iterdir()) == []


def test_what_is_no_url(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"http://\[ can't be downloaded: Invalid IPv6 URL"):
        download("http://[", tmp_path / "file", progress=False)


def test_a_model_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    """What a hub has in its cache, links included, is whole files here."""
    cache, to = tmp_path / "cache", tmp_path / "deployment" / "model"
    (cache / "inner").mkdir(parents=True)
    (tmp_path / "blob").write_text("weights")
    (cache / "llm.pt").symlink_to(tmp_path / "blob")
    (cache / "inner" / "config.json").write_text("{}")
    assert download(str(cache), to, progress=False)
    assert (to / "llm.pt").read_text() == "weights"
    assert not (to / "llm.pt").is_symlink()
    assert (to / "inner" / "config.json").read_text() == "{}"
    assert not download(str(cache), to, progress=False)
    with pytest.raises(CheckpointError, match="neither a folder here nor the name"):
        download("no model", tmp_path / "other", progress=False)
    assert not (tmp_path / "other").exists()

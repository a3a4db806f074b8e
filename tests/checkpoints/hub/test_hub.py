"""Published models are fetched from hubs on this machine, over real connections."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from huggingface_hub import constants

from cosyserve.checkpoints.hub.hub import FILE_PATTERNS, fetch_model, looks_like_hub_name
from cosyserve.errors import CheckpointError
from tests.checkpoints.hub.hub_server import PUBLISHED, REPO, Fetch, Start, content
from tests.checkpoints.hub.test_modelscope import from_modelscope


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def from_hugging_face(endpoint: str, name: str = REPO, **environment: str) -> Path:
    """The library reads its environment at import: here that has happened, so set what it read."""
    read = {
        "ENDPOINT": endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": os.environ["HF_HOME"],
        "HF_HUB_OFFLINE": "HF_HUB_OFFLINE" in environment,
        "HF_HUB_ETAG_TIMEOUT": 1,
    }
    with pytest.MonkeyPatch.context() as patch:
        for key, value in read.items():
            patch.setattr(constants, key, value)
        for key, setting in environment.items():
            patch.setenv(key, setting)
        return fetch_model(name, progress=False)


def in_a_process(name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; from cosyserve.checkpoints.hub.hub import fetch_model; "
        "print(fetch_model(sys.argv[1], progress='SHOW_PROGRESS' in sys.argv))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, name, *environment],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=30,
    )


both_hubs = pytest.mark.parametrize("fetch", [from_hugging_face, from_modelscope])


@both_hubs
def test_all_that_we_read_is_fetched_and_nothing_else(start_hub: Start, fetch: Fetch) -> None:
    hub = start_hub()
    assert content(fetch(hub.url)) == PUBLISHED
    assert sorted(hub.fetched) == sorted(PUBLISHED)


@both_hubs
def test_a_second_time_no_file_is_fetched_and_offline_nothing_is_asked(
    start_hub: Start, fetch: Fetch
) -> None:
    hub = start_hub()
    folder = fetch(hub.url)
    hub.fetched.clear()
    assert fetch(hub.url) == folder
    assert not hub.fetched
    hub.requests = 0
    assert fetch(hub.url, HF_HUB_OFFLINE="1") == folder
    assert hub.requests == 0
    assert fetch(closed_port()) == folder


@both_hubs
def test_offline_without_the_model_says_how_to_bring_it(start_hub: Start, fetch: Fetch) -> None:
    hub = start_hub()
    with pytest.raises(CheckpointError, match=r"HF_HUB_OFFLINE is set.*copy DIR here, then `cosy"):
        fetch(hub.url, HF_HUB_OFFLINE="1")
    assert hub.requests == 0


@both_hubs
def test_unreachable_fails_fast_and_says_how_to_bring_the_model(
    start_hub: Start, fetch: Fetch
) -> None:
    began = time.monotonic()
    with pytest.raises(CheckpointError, match=r"can't be reached.*no network: on a machine that"):
        fetch(closed_port())
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("fetch", "kept"), [(from_hugging_face, 10 << 20), (from_modelscope, 11 << 20)]
)
def test_a_broken_connection_is_resumed_where_it_broke(
    start_hub: Start, fetch: Fetch, kept: int
) -> None:
    """Hugging Face's library keeps whole pieces of 10 MiB, ModelScope's bytes are all kept."""
    files = {"llm.pt": bytes(12 << 20)}
    hub = start_hub(files=files, cut={"llm.pt": 11 << 20})
    assert content(fetch(hub.url)) == files
    assert hub.resumed == [("llm.pt", f"bytes={kept}-")]


@both_hubs
def test_an_unknown_repository(start_hub: Start, fetch: Fetch) -> None:
    with pytest.raises(CheckpointError, match="does not show it: check the name"):
        fetch(start_hub().url, "nobody/nothing")


@both_hubs
def test_only_the_subfolder_is_fetched(start_hub: Start, fetch: Fetch) -> None:
    token2wav = {"flow.yaml": b"flow: {}", "flow.pt": b"flow", "hift.pt": b"hift"}
    hub = start_hub(files=PUBLISHED | {f"parts/token2wav/{k}": v for k, v in token2wav.items()})
    folder = fetch(hub.url, f"{REPO}/parts/token2wav")
    assert folder.name == "token2wav"
    assert content(folder) == token2wav
    assert sorted(hub.fetched) == sorted(f"parts/token2wav/{name}" for name in token2wav)
    assert fetch(hub.url, f"{REPO}/parts/token2wav", HF_HUB_OFFLINE="1") == folder
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE"):
        fetch(hub.url, HF_HUB_OFFLINE="1")
    with pytest.raises(CheckpointError, match="no model file in its folder elsewhere"):
        fetch(hub.url, f"{REPO}/elsewhere")


def test_a_gated_repository_of_hugging_face(start_hub: Start) -> None:
    hub = start_hub(gated=True)
    with pytest.raises(CheckpointError, match=rf"ask for it on {hub.url}/{REPO}.*hf auth login"):
        from_hugging_face(hub.url)
    assert content(from_hugging_face(hub.url, HF_TOKEN="open-sesame")) == PUBLISHED


def test_a_silent_hugging_face_is_given_up(start_hub: Start) -> None:
    with pytest.raises(CheckpointError, match="can't be reached"):
        from_hugging_face(start_hub(silent=True).url)


def test_the_environment_steers_hugging_face(start_hub: Start, tmp_path: Path) -> None:
    hub = start_hub(gated=True)
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "elsewhere")}
    done = in_a_process(REPO, **environment, HF_TOKEN="open-sesame", SHOW_PROGRESS="")
    folder = Path(done.stdout.strip())
    assert folder.is_relative_to(tmp_path / "elsewhere")
    assert content(folder) == PUBLISHED
    assert f"Fetching {len(PUBLISHED)} files: 100%" in done.stderr
    done = in_a_process(REPO, **environment, HF_HUB_OFFLINE="1")
    assert Path(done.stdout.strip()) == folder
    assert done.stderr == ""


def test_importing_asks_no_hub_and_loads_no_torch() -> None:
    program = "import sys, cosyserve.checkpoints.hub.hub; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "cosyserve.checkpoints.hub.hub" in loaded
    assert not loaded & {"torch", "huggingface_hub"}


def test_every_part_of_a_native_folder_is_wanted() -> None:
    from cosyserve.checkpoints.parts import MODULES

    for part in MODULES:
        assert {f"{part}.safetensors", f"{part}.onnx"} <= set(FILE_PATTERNS)


@both_hubs
def test_a_disk_that_takes_no_more(start_hub: Start, fetch: Fetch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"can't be stored in .*on another disk"):
            fetch(start_hub().url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@both_hubs
def test_without_progress_nothing_is_shown(
    start_hub: Start, fetch: Fetch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(start_hub().url)
    assert capsys.readouterr() == ("", "")


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert fetch_model(str(tmp_path), progress=False) == tmp_path


@pytest.mark.parametrize("name", ["", "voice", "../voice", "no such/folder", "ms:voice", "a/b/"])
def test_neither_a_folder_nor_a_name(name: str) -> None:
    assert not looks_like_hub_name(name)
    with pytest.raises(CheckpointError, match="neither a folder here nor the name"):
        fetch_model(name, progress=False)


@pytest.mark.parametrize(
    "name", ["FunAudioLLM/CosyVoice2-0.5B", "ms:iic/CosyVoice2-0.5B", "a/b/token2wav", "a/b_c/d/e"]
)
def test_names_of_hubs(name: str) -> None:
    assert looks_like_hub_name(name)

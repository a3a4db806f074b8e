"""ModelScope: what arrives is resumed, checked and believed only as far as it must be."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cosyserve.checkpoints.hub import http_file
from cosyserve.checkpoints.hub.hub import fetch_model
from cosyserve.errors import CheckpointError
from tests.checkpoints.hub.hub_server import PUBLISHED, REPO, UNREAD, WEIGHTS, Start, content


def from_modelscope(endpoint: str, name: str = REPO, **environment: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        for key, value in ({"MODELSCOPE_DOMAIN": endpoint} | environment).items():
            patch.setenv(key, value)
        return fetch_model(f"ms:{name}", progress=False)


def test_a_silent_modelscope_is_given_up(start_hub: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_file, "TIMEOUT", 0.2)
    with pytest.raises(CheckpointError, match="can't be reached"):
        from_modelscope(start_hub(silent=True).url)


def test_a_native_folder_on_a_hub(start_hub: Start) -> None:
    native = {"config.json": b'{"format": "cosyserve"}', "tokenizer.json": b"{}"}
    native |= {
        "lm.safetensors": b"lm",
        "speaker_encoder.onnx": b"x",
        "voices/anna.safetensors": b"a",
    }
    assert content(from_modelscope(start_hub(files=native | UNREAD).url)) == native


def test_a_download_that_was_given_up_is_resumed_by_the_next_process(
    start_hub: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_file, "ATTEMPTS", 1)
    short = start_hub(files=PUBLISHED | {"llm.pt": WEIGHTS[:300_000]})
    short.listed["llm.pt"] = {
        "Size": len(WEIGHTS),
        "Sha256": hashlib.sha256(WEIGHTS).hexdigest(),
    }
    with pytest.raises(CheckpointError):
        from_modelscope(short.url)
    (part,) = (tmp_path / "ms").rglob("*.part")
    assert part.stat().st_size == 300_000
    whole = start_hub()
    assert content(from_modelscope(whole.url)) == PUBLISHED
    assert whole.resumed == [("llm.pt", "bytes=300000-")]
    assert "cosyvoice2.yaml" not in whole.fetched


def test_a_server_without_ranges_is_read_past_what_we_have(start_hub: Start) -> None:
    hub = start_hub(cut={"llm.pt": 100_000}, ranges=False)
    assert content(from_modelscope(hub.url)) == PUBLISHED


def test_a_wrong_checksum_leaves_nothing_behind(start_hub: Start, tmp_path: Path) -> None:
    hub = start_hub(listed={"llm.pt": {"Sha256": "0" * 64}})
    with pytest.raises(CheckpointError, match=r"llm\.pt.*checksum.*run the same command again"):
        from_modelscope(hub.url)
    assert not list((tmp_path / "ms").rglob("llm.pt*"))
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE"):
        from_modelscope(hub.url, HF_HUB_OFFLINE="1")


def test_more_bytes_than_listed_are_refused(start_hub: Start) -> None:
    hub = start_hub(listed={"llm.pt": {"Size": 1_000, "Sha256": ""}})
    with pytest.raises(CheckpointError, match="more than the listed 1000 bytes"):
        from_modelscope(hub.url)


def test_a_changed_file_is_fetched_anew_and_alone(start_hub: Start) -> None:
    folder = from_modelscope(start_hub().url)
    changed = PUBLISHED | {"campplus.onnx": b"ONNX"}
    hub = start_hub(files=changed)
    assert content(from_modelscope(hub.url)) == changed
    assert hub.fetched == ["campplus.onnx"]
    (folder / "campplus.onnx").unlink()
    with pytest.raises(CheckpointError, match="doesn't hold all of it"):
        from_modelscope(hub.url, HF_HUB_OFFLINE="1")


def test_a_refresh_that_failed_halfway_is_not_a_whole_copy(start_hub: Start) -> None:
    from_modelscope(start_hub().url)
    newer = start_hub(
        files=PUBLISHED | {"cosyvoice2.yaml": b"llm: 2\n\n", "llm.pt": WEIGHTS[::-1]},
        listed={"llm.pt": {"Sha256": "0" * 64}},
    )
    with pytest.raises(CheckpointError, match="checksum"):
        from_modelscope(newer.url)
    with pytest.raises(CheckpointError, match="doesn't hold all of it"):
        from_modelscope(newer.url, HF_HUB_OFFLINE="1")


def test_a_part_that_is_too_long_is_begun_anew(start_hub: Start, tmp_path: Path) -> None:
    part = tmp_path / "ms/models/maker/Voice2-0___5B/llm.pt.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(len(WEIGHTS) + 1))
    hub = start_hub()
    assert content(from_modelscope(hub.url)) == PUBLISHED
    assert not hub.resumed


@pytest.mark.parametrize(
    "path",
    [
        "../out.json",
        "/etc/out.json",
        "a/../../out.json",
        "a\\..\\out.json",
        "a\0.json",
        "a//b.json",
    ],
)
def test_a_listing_that_leads_out_of_the_folder_is_refused_whole(
    start_hub: Start, tmp_path: Path, path: str
) -> None:
    hub = start_hub(listed={"README.md": {"Path": path}})
    with pytest.raises(CheckpointError, match="leads out of the model's folder"):
        from_modelscope(hub.url)
    assert not hub.fetched
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("entry", [{"Size": -1}, {"Size": "7"}, {"Path": None}, {"Sha256": 7}])
def test_a_malformed_listing(start_hub: Start, entry: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="sent no list of files"):
        from_modelscope(start_hub(listed={"llm.pt": entry}).url)


def test_a_disk_that_is_too_small(start_hub: Start) -> None:
    hub = start_hub(listed={"llm.pt": {"Size": 10**18}})
    with pytest.raises(CheckpointError, match=r"is full: 1000000000\.0 GB are needed"):
        from_modelscope(hub.url)
    assert not hub.fetched


def test_the_token_of_modelscope_follows_no_redirect(start_hub: Start) -> None:
    hub = start_hub(files={"llm.pt": WEIGHTS})
    from_modelscope(hub.url, MODELSCOPE_API_TOKEN="open-sesame\n")
    assert hub.tokens == {
        f"/api/v1/models/{REPO}/repo/files": "Bearer open-sesame",
        f"/api/v1/models/{REPO}/repo": "Bearer open-sesame",
        "/cdn/llm.pt": None,
    }


def test_a_server_in_trouble_is_asked_again(start_hub: Start) -> None:
    assert content(from_modelscope(start_hub(trouble={"llm.pt": 2}).url)) == PUBLISHED


def test_two_that_fetch_the_same_model_fetch_it_once(
    start_hub: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = start_hub()
    monkeypatch.setenv("MODELSCOPE_DOMAIN", hub.url)
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: fetch_model(f"ms:{REPO}", progress=False), range(4)))
    assert len(folders) == 1
    assert sorted(hub.fetched) == sorted(PUBLISHED)


def test_progress_is_shown_when_asked(
    start_hub: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", start_hub().url)
    fetch_model(f"ms:{REPO}", progress=True)
    assert "llm.pt" in capsys.readouterr().err

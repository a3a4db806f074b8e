"""Voices and consents with OpenAI's own client, unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import openai
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.voices.consents import ConsentStore
from cosyserve.voices.shelves.folder import FolderShelf
from tests.gateway.serving import Running
from tests.gateway.sine_engine import sine

RECORDING = ("me.wav", encode(sine(36_000), AudioFormat.WAV), "audio/wav")


@pytest.fixture
def audio(server: Running) -> Iterator[openai.resources.Audio]:
    with openai.OpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=0) as client:
        yield client.audio


def test_a_consent_and_the_voice_that_it_allows(
    audio: openai.resources.Audio, server: Running
) -> None:
    consent = audio.voice_consents.create(language="en-US", name="Ada", recording=RECORDING)
    assert consent.id.startswith("cons_")
    assert (consent.object, consent.language) == ("audio.voice_consent", "en-US")
    assert audio.voice_consents.retrieve(consent.id) == consent
    assert audio.voice_consents.update(consent.id, name="Ada L.").name == "Ada L."

    voice = audio.voices.create(audio_sample=RECORDING, consent=consent.id, name="Ada Lovelace")
    assert (voice.id, voice.name, voice.object) == ("Ada-Lovelace", "Ada Lovelace", "audio.voice")
    assert (voice.type, voice.created_at > 1_700_000_000) == ("audio_sample", True)
    details = server.http.get(f"/v1/audio/voices/{voice.id}").json()
    assert details["consent"] == f"Ada L. ({consent.id})"

    audio.speech.create(model="tts-1", voice={"id": voice.id}, input="Hello.")
    assert len(server.engine.requests[-1].voice.speech_tokens) == 37
    deleted = audio.voices.delete(voice.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (voice.id, True, "audio.voice.deleted")
    gone = audio.voice_consents.delete(consent.id)
    assert (gone.deleted, gone.object) == (True, "audio.voice_consent")
    with pytest.raises(openai.NotFoundError, match="no consent"):
        audio.voice_consents.retrieve(consent.id)


def test_consents_come_in_pages(audio: openai.resources.Audio) -> None:
    made = [
        audio.voice_consents.create(language="en", name=f"n{n}", recording=RECORDING).id
        for n in range(3)
    ]
    page = audio.voice_consents.list(limit=2)
    assert (len(page.data), page.has_more) == (2, True)
    assert {consent.id for consent in audio.voice_consents.list(limit=2)} == set(made)
    with pytest.raises(openai.BadRequestError, match="no consent 'cons_1234'"):
        audio.voice_consents.list(after="cons_1234")
    for id in made:
        audio.voice_consents.delete(id)
    assert audio.voice_consents.list().data == []


def test_no_voice_without_a_consent_that_exists(audio: openai.resources.Audio) -> None:
    with pytest.raises(openai.BadRequestError, match="no consent 'cons_1234'"):
        audio.voices.create(audio_sample=RECORDING, consent="cons_1234", name="eve")
    checked = f"Ada (cons_{32 * '0'})"
    with pytest.raises(openai.BadRequestError, match="the id of a consent alone"):
        audio.voices.create(audio_sample=RECORDING, consent=checked, name="eve")
    with pytest.raises(openai.BadRequestError, match="made from recordings"):
        audio.voices.create(type="prompt", prompt="deep", name="eve")
    noise = ("noise.wav", b"noise" * 100, "audio/wav")
    with pytest.raises(openai.BadRequestError):
        audio.voice_consents.create(language="en", name="eve", recording=noise)


def test_other_servers_names_for_an_upload(server: Running) -> None:
    form = {"name": "ada", "consent": "agreed", "ref_text": "Hum.", "speaker_description": "calm"}
    files = {"audio_sample": RECORDING}
    made = server.http.post("/v1/audio/voices", data=form, files=files)
    assert (made.status_code, made.json()["prompt_text"]) == (201, "Hum.")
    assert server.http.delete("/v1/audio/voices/ada").json()["deleted"] is True
    both = {"audio_sample": RECORDING, "file": RECORDING}
    refused = server.http.post("/v1/audio/voices", data=form, files=both)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "file")


def test_ids_leave_no_folder(tmp_path: Path) -> None:
    store = ConsentStore(FolderShelf(tmp_path / "voices"))
    kept = store.add("Ada", "en", b"audio\nwith lines")
    assert store.rename(kept.id, "Bea") == store.get(kept.id)
    (file,) = (tmp_path / "voices" / "consent").iterdir()
    assert file.read_bytes().endswith(b"\naudio\nwith lines")
    for id in ("../voices/x", "cons_" + "z" * 32, kept.id + "/..", ""):
        assert store.get(id) is None
        assert not store.remove(id)
    assert store.all() == [store.get(kept.id)]


DAMAGED = [b"", b"junk\n", b"[]\n", b"[" * 9000, b'{"id": "x", "name": 5}\n']


def test_damaged_ones_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ConsentStore(FolderShelf(tmp_path))
    kept = store.add("Ada", "en", b"audio")
    strange = json.dumps(asdict(replace(kept, created_at="today"))).encode()  # type: ignore[arg-type]
    copied = json.dumps(asdict(kept)).encode()
    for number, data in enumerate([*DAMAGED, strange, copied]):
        (tmp_path / "consent" / f"cons_{number:032}.consent").write_bytes(data)
    assert store.all() == [kept]
    assert caplog.text.count("not a consent, or damaged") == len(DAMAGED) + 2

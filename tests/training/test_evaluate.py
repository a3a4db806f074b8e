"""What the evaluation keeps of a list that was spoken and judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import cosyserve
from cosyserve.checkpoints.load import SHIPPED_FOLDER
from cosyserve.voices.file import load_voice
from training import evaluate

LISTS = Path(evaluate.__file__).parent / "lists"


def entry(text: str, voice: str, heard: str, **more: Any) -> dict[str, Any]:
    told = {"file": "000.wav", "text": text, "read": text, "voice": voice, "finish": "stop"}
    told |= {
        "seconds": 2.0,
        "spent": 1.0,
        "first": 0.5,
        "mos": 4.0,
        "moonshine": heard,
        "whisper": text,
    }
    return told | more


def spoken() -> dict[str, Any]:
    first = entry("Go to 5th Street.", "ann", "Go to 5th Street", nearest="ann", likeness=0.9)
    second = entry("One two.", "bob", "One.", nearest="ann", mos=2.0, finish="length", spent=3.0)
    second["likeness"] = 0.6
    return {"said": [first, second], "teacher_own_voice": 1.0}


def test_figures_of_all_and_of_each_voice() -> None:
    found = evaluate.summary(spoken()["said"])
    assert found["words_missed_moonshine"] == pytest.approx(1 / 6, abs=1e-4)
    assert found["words_missed_whisper"] == 0
    assert (found["mos"], found["mos_lowest"], found["mos_poor"]) == (3.0, 2.0, 1)
    assert (found["cut_off"], found["own_voice"], found["rtf"]) == (1, 0.5, 1.0)
    assert (found["likeness"], found["voices"]["ann"]["likeness"]) == (0.75, 0.9)
    assert found["voices"]["bob"]["words_missed_moonshine"] == 0.5
    assert found["voices"]["ann"]["mos"] == 4.0


def test_the_result_keeps_what_each_judge_wrote() -> None:
    both = {"whole": spoken(), "streamed": spoken()}
    found = json.loads(evaluate.result("nano", "typed", both, {"load_s": 0.4}))
    assert (found["model"], found["list"], found["load_s"]) == ("nano", "typed", 0.4)
    assert found["teacher_own_voice"] == 1.0
    assert [line["streamed"]["moonshine"] for line in found["sentences"]] == [
        "Go to 5th Street",
        "One.",
    ]
    assert "nearest" not in found["sentences"][0]["whole"]
    assert found["sentences"][1]["whole"]["nearest"] == "ann"
    assert found["sentences"][1]["whole"]["likeness"] == 0.6
    assert found["whole"] == evaluate.summary(both["whole"]["said"])


def test_the_list_is_one_of_different_sentences() -> None:
    texts = (LISTS / "typed.txt").read_text("utf-8").splitlines()
    assert (len(texts), len(set(texts))) == (200, 200)
    assert all(2 <= len(text.split()) <= 20 for text in texts)


def test_kept_results_add_up() -> None:
    """Figures that documents quote are those of the transcripts beside them."""
    for file in evaluate.RESULTS.glob("*.json"):
        found = json.loads(file.read_text("utf-8"))
        lines = found["sentences"]
        assert file.stat().st_size <= 150_000
        for way in (way for way in evaluate.WAYS if way in found):
            own = [{key: line[key] for key in ("text", "read", "voice")} for line in lines]
            said = [a | {"nearest": a["voice"]} | b[way] for a, b in zip(own, lines, strict=True)]
            kept = evaluate.figures(said)
            if "own_voice" not in found[way]:
                del kept["own_voice"]
            assert kept.items() <= found[way].items()


def test_presets_take_turns_or_one_is_chosen() -> None:
    stems = [file.stem for file in evaluate.presets(SHIPPED_FOLDER, None)]
    assert stems == sorted(stems)
    assert "default" not in stems
    assert [file.stem for file in evaluate.presets(SHIPPED_FOLDER, "default")] == ["default"]


def test_a_voice_that_is_not_there_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "voices").mkdir()
    for name in ("ann", "bob"):
        (tmp_path / "voices" / f"{name}.safetensors").touch()
    words = ["--model", str(tmp_path), "--list", str(LISTS / "typed.txt"), "--voice", "anne"]
    words += ["--judges", "python", "--moonshine", "none", "--work", str(tmp_path / "work")]
    monkeypatch.setattr("sys.argv", ["evaluate", *words])
    with pytest.raises(SystemExit, match="has no voice anne: there are ann, bob"):
        evaluate.main()


def test_voices_are_cloned_from_recordings(tmp_path: Path) -> None:
    tts = cosyserve.load(device="cpu", dtype="float32")
    words = "A few seconds of speech are enough to learn a voice from."
    evaluate.write_wav(tmp_path / "heart.wav", tts.say(words, seed=1))
    samples, rate = soundfile.read(tmp_path / "heart.wav")
    soundfile.write(tmp_path / "some_heart-2.flac", samples, rate)
    (tmp_path / "some_heart-2.txt").write_text(words)
    (file,) = evaluate.cloned(tts, tmp_path, tmp_path / "voices")
    found = load_voice(file)
    assert (file.stem, found.prompt_text) == ("some_heart", words)
    own, other = found.embedding, tts.default_voice.embedding
    assert own @ other / np.linalg.norm(own) / np.linalg.norm(other) > 0.5

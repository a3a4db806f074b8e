from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from cosyserve.checkpoints import published
from cosyserve.checkpoints.load import load_folder
from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.parts import Parts
from cosyserve.checkpoints.published import keys
from cosyserve.checkpoints.published.config import (
    ConfigReader,
    conformer,
    flow,
    qwen,
    unet,
    vocoder,
)
from cosyserve.errors import CheckpointError, InputError
from cosyserve.models.config import (
    DiTConfig,
    FlowConfig,
    LMConfig,
    LookaheadConfig,
    RotaryDiTConfig,
    UNetConfig,
    VocoderConfig,
)
from cosyserve.models.lm.lm import SpeechLM
from tests import published as tiny
from tests.golden.fill import fill
from tests.golden.weights import filled_flow, filled_lm, filled_vocoder

KEYS = Path(__file__).parents[2] / "golden" / "keys"
ENCODERS = ("speech_tokenizer_v2.onnx", "campplus.onnx")
PUBLISHED = "COSYSERVE_COSYVOICE2_CONFIG"  # names a folder outside of the repository


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def on_no_device_but(device: str, model: Model) -> bool:
    parts = (model.lm, *(part for pair in model.token2wavs for part in pair))
    tensors = [t for part in parts if part for t in (*part.parameters(), *part.buffers())]
    return {t.device.type for t in tensors} == {device}


def test_a_cosyvoice2_folder(cosyvoice2_folder: Path) -> None:
    model = load_folder(cosyvoice2_folder)
    assert on_no_device_but("cpu", model)
    lm, tokenizer = model.need_lm()
    flow, vocoder = model.need_token2wav()
    written = filled_lm(tiny.LM, 0, fill).state_dict()
    written["head.bias"][tiny.LM.speech_tokens] += tiny.END_BIAS
    assert same(lm.state_dict(), written)
    assert same(flow.state_dict(), filled_flow(tiny.UNET_FLOW, 0, fill).state_dict())
    assert same(vocoder.state_dict(), filled_vocoder(tiny.VOCODER, 0, fill).state_dict())
    assert (lm.config, flow.config, vocoder.config) == (tiny.LM, tiny.UNET_FLOW, tiny.VOCODER)
    assert (model.config.speech_tokenizer, model.config.speaker_encoder) == (tiny.S3, tiny.CAMPLUS)
    assert tokenizer.decode(tokenizer.encode("Tokens 希望!")) == "Tokens 希望!"
    assert len(model.config.fingerprint) == 16
    assert not any(p.requires_grad for p in (*lm.parameters(), *flow.parameters()))


def written_lm3(salt: int) -> dict[str, Tensor]:
    state = filled_lm(tiny.LM3, salt, fill).state_dict()
    state["head.weight"][tiny.LM3.eos] *= tiny.END_SCALE
    return state


def test_a_cosyvoice3_folder(cosyvoice3_folder: Path) -> None:
    model = load_folder(cosyvoice3_folder)
    lm, tokenizer = model.need_lm()
    flow, vocoder = model.need_token2wav()
    assert model.config.family == model.config.voice_format.family == "cosyvoice3"
    assert same(lm.state_dict(), written_lm3(0))
    assert same(flow.state_dict(), filled_flow(tiny.ROTARY_FLOW, 0, fill).state_dict())
    assert same(vocoder.state_dict(), filled_vocoder(tiny.CAUSAL_VOCODER, 0, fill).state_dict())
    assert model.config.speech_tokenizer == tiny.S3_V3
    assert tokenizer.encode("[zh][ǒng]") == [tiny.VOCABULARY + n for n in (206, 274)]
    assert tokenizer.decode(tokenizer.encode("Tokens 希望!")) == "Tokens 希望!"


def test_another_lm_of_a_folder(cosyvoice3_folder: Path, token2wav_folder: Path) -> None:
    other = published.read(cosyvoice3_folder, only=("lm",), lm_file="llm.rl.pt")
    assert same(other.states["lm"], written_lm3(1))
    with pytest.raises(CheckpointError, match=r"gone\.pt"):
        published.read(cosyvoice3_folder, only=("lm",), lm_file="gone.pt")
    with pytest.raises(CheckpointError, match="only a CosyVoice folder has a choice"):
        published.read(token2wav_folder, lm_file="llm.rl.pt")


def test_families_are_not_joined(cosyvoice3_folder: Path, token2wav_folder: Path) -> None:
    lm = published.read(cosyvoice3_folder, only=("lm",))
    with pytest.raises(CheckpointError, match="their speech tokens differ"):
        lm.joined(published.read(token2wav_folder))


def test_a_token2wav_folder(token2wav_folder: Path) -> None:
    model = load_folder(token2wav_folder)
    flow, _ = model.need_token2wav()
    assert same(flow.state_dict(), filled_flow(tiny.DIT_FLOW, 0, fill).state_dict())
    assert flow.config == tiny.DIT_FLOW
    model.need_prompt_encoders()
    with pytest.raises(CheckpointError, match="has no speech LM: join one"):
        model.need_lm()


def logits(lm: SpeechLM, text: list[int], speech: list[int]) -> Tensor:
    config = lm.config
    ids = [config.sos, *text, config.task, *(config.text_vocab + token for token in speech)]
    return lm.logits(lm(torch.tensor([ids])))


def test_both_forms_of_the_lm_are_one(
    cosyvoice2_folder: Path, hugging_face_lm_folder: Path
) -> None:
    ours, tokenizer = load_folder(cosyvoice2_folder).need_lm()
    theirs, their_tokenizer = load_folder(hugging_face_lm_folder).need_lm()
    assert theirs.config == tiny.hugging_face_config()
    text = tokenizer.encode("Speech, frames.<|endofprompt|>")
    assert their_tokenizer.encode("Speech, frames.<|endofprompt|>") == text
    speech = [0, 5, 6560, 77]
    assert torch.equal(logits(ours, text, speech), logits(theirs, text, speech))


def test_an_lm_folder_with_one_tokenizer_file(hugging_face_lm_folder: Path, tmp_path: Path) -> None:
    folder = tiny.linked(hugging_face_lm_folder, tmp_path / "lm")
    expected, plain = load_folder(folder).need_lm()
    plain.save(folder / "tokenizer.json")
    bpe = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bpe.add_special_tokens(tiny.speech_names())
    bpe.save(str(folder / "tokenizer.json"))
    for name in ("vocab.json", "merges.txt", "added_tokens.json"):
        (folder / name).unlink()
    lm, tokenizer = load_folder(folder).need_lm()
    assert same(lm.state_dict(), expected.state_dict())
    assert tokenizer.encode("A dog.") == plain.encode("A dog.")


def test_parts_of_two_folders_are_joined(
    cosyvoice2_folder: Path, hugging_face_lm_folder: Path, token2wav_folder: Path
) -> None:
    lm, token2wav = published.read(hugging_face_lm_folder), published.read(token2wav_folder)
    for joined in (lm.joined(token2wav), token2wav.joined(lm)):
        assert joined.names == {"lm", "flow", "vocoder", "speech_tokenizer", "speaker_encoder"}
        assert joined.tokenizer is lm.tokenizer
        assert joined.config.name == lm.config.name
        assert joined.config.fingerprint == token2wav.config.fingerprint
    with pytest.raises(CheckpointError, match="both folders have the part 'lm'"):
        published.read(cosyvoice2_folder).joined(lm)
    other = replace(lm.config, lm=replace(tiny.LM, speech_tokens=100))
    with pytest.raises(CheckpointError, match="speech tokens: the LM has 100, the flow 6561"):
        token2wav.joined(replace(lm, config=other))
    voiced = [replace(parts, voices=(Path("a/x.safetensors"),)) for parts in (lm, token2wav)]
    with pytest.raises(CheckpointError, match=r"the voice 'x\.safetensors'"):
        Parts.joined(*voiced)


def test_a_folder_without_prompt_encoders_is_a_model(
    cosyvoice2_folder: Path, tmp_path: Path
) -> None:
    model = load_folder(tiny.linked(cosyvoice2_folder, tmp_path / "m", ENCODERS))
    model.need_lm()
    assert model.config.fingerprint == ""
    with pytest.raises(InputError, match="no speech tokenizer or speaker encoder"):
        model.need_prompt_encoders()


def saved(change: Callable[[dict], dict]) -> Callable[[Path], None]:
    def rewrite(file: Path) -> None:
        state = torch.load(file)
        file.unlink()
        torch.save(change(state), file)

    return rewrite


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("hift.pt", lambda state: {f"generator.{key}": value for key, value in state.items()}),
        ("flow.pt", lambda state: state | {"epoch": 3, "step": 1000}),
        ("llm.pt", lambda state: {k: v for k, v in state.items() if k != keys.LM_HEAD}),
        ("llm.pt", lambda state: {k: torch.nn.Parameter(v) for k, v in state.items()}),
    ],
)
def test_what_trainers_save_is_read_alike(
    file: str, change: Callable[[dict], dict], cosyvoice2_folder: Path, tmp_path: Path
) -> None:
    folder = tiny.linked(cosyvoice2_folder, tmp_path / "m", ENCODERS)
    expected = published.read(folder).states
    saved(change)(folder / file)
    actual = published.read(folder).states
    assert all(same(actual[part], expected[part]) for part in expected)


def test_half_precision_is_kept(hugging_face_lm_folder: Path, tmp_path: Path) -> None:
    folder = tiny.linked(hugging_face_lm_folder, tmp_path / "lm")
    file = folder / "model.safetensors"
    state = {key: value.bfloat16() for key, value in load_file(file).items()}
    file.unlink()
    save_file(state, file)
    assert {t.dtype for t in published.read(folder).states["lm"].values()} == {torch.bfloat16}
    lm, _ = load_folder(folder, dtype=torch.float32).need_lm()
    assert {p.dtype for p in lm.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("llm", lambda: keys.lm_shapes(LMConfig())),
        ("flow", lambda: keys.flow_shapes(FlowConfig())),
        ("stepaudio2_flow", lambda: keys.flow_shapes(FlowConfig(estimator=DiTConfig()))),
        ("hift", lambda: keys.vocoder_shapes(VocoderConfig())),
        ("cv3_llm", lambda: keys.lm_shapes(LMConfig(kind="cosyvoice3"))),
        ("cv3_flow", lambda: keys.flow_shapes(FlowConfig(LookaheadConfig(), RotaryDiTConfig()))),
        ("cv3_hift", lambda: keys.vocoder_shapes(VocoderConfig(causal=True))),
    ],
)
def test_full_size_keys_are_the_published_ones(
    name: str, shapes: Callable[[], keys.Shapes]
) -> None:
    lines = (KEYS / f"keys_{name}.tsv").read_text().splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    assert shapes() == {key: tuple(map(int, shape.split("x"))) for key, shape, *_ in rows}


@pytest.mark.skipif(
    PUBLISHED not in os.environ,
    reason=f"set {PUBLISHED} to a folder with CosyVoice2-0.5B's cosyvoice2.yaml and config.json",
)
def test_the_published_yaml_has_the_published_sizes() -> None:
    folder = Path(os.environ[PUBLISHED])
    reader = ConfigReader.of_yaml(folder / "cosyvoice2.yaml")
    assert unet(reader) == UNetConfig()
    assert flow(reader, conformer(reader), unet(reader)) == FlowConfig()
    assert vocoder(reader, causal=False) == VocoderConfig()
    assert qwen(folder / "config.json", 6561) == LMConfig()


def test_other_families_are_refused_with_a_reason(cosyvoice2_folder: Path, tmp_path: Path) -> None:
    folder = tiny.linked(cosyvoice2_folder, tmp_path / "first", ("cosyvoice2.yaml",))
    (folder / "cosyvoice.yaml").write_text("sample_rate: 22050\n")
    with pytest.raises(CheckpointError, match=r"cosyvoice\.yaml: .*300M.*CosyVoice2-0.5B"):
        published.read(folder)


def test_folders_of_nothing_we_know(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="gone: no such folder"):
        published.read(tmp_path / "gone")
    with pytest.raises(CheckpointError, match="found nothing"):
        published.read(tmp_path)
    (tmp_path / "README.md").write_text("hello")
    with pytest.raises(CheckpointError, match=r"Expected cosyvoice2\.yaml, .* found README\.md"):
        published.read(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(tiny.qwen_config(100)))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"neither added_tokens\.json nor tokenizer\.json"):
        published.read(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|im_end|>": 5}))
    with pytest.raises(
        CheckpointError,
        match=r"added_tokens\.json: no <\|s_0\|> in it: a Hugging Face model, but no speech LM",
    ):
        published.read(tmp_path)

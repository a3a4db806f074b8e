"""What is seen of a repository before a server is started on it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import text_format

from cosyserve.deploy.triton.check import check
from tests.deploy.triton.test_repository import ORIGINAL, engine, rendered, tensors


def replaced(old: str, new: str, model: str = "token2wav") -> Callable[[Path], None]:
    def damage(repository: Path) -> None:
        file = repository / model / "config.pbtxt"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    return damage


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (replaced('"token2wav"', '"token3wav"'), "the name is 'token3wav'"),
        (replaced("max_batch_size: 16", "max_batch_size: ${size}"), "line 2: .{size} was never"),
        (replaced("max_batch_size: 16", "batch: 16"), 'no field named "batch"'),
        (replaced('"target_speech_tokens"', '"tokens"'), "input 'target_speech_tokens' is missing"),
        (replaced("TYPE_INT32", "TYPE_INT64"), "must be TYPE_INT32"),
        (replaced('"stream_seconds"', '"seconds"'), "parameter 'stream_seconds' is missing"),
        (replaced("weights", "nowhere"), "is no folder of `cosyserve prepare`"),
        (lambda r: (r / "token2wav" / "1" / "model.py").unlink(), "model.py: missing"),
        (lambda r: (r / "token2wav" / "1" / "model.py").write_text("x"), "not the import"),
        (lambda r: (r / "token2wav").rename(r.parent / "gone"), "asks the model 'token2wav'"),
        (lambda r: (r / "more").mkdir(), "config.pbtxt: missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damage_is_seen(tmp_path: Path, damage: Callable[[Path], None], complaint: str) -> None:
    rendered(tmp_path)
    assert check(tmp_path / "repository") == []
    damage(tmp_path / "repository")
    assert re.search(complaint, "\n".join(check(tmp_path / "repository")))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"tokenizer_dir"', '"dir"', "parameter 'tokenizer_dir' is missing.*empty will do"),
        ('"gpt_model_path"', '"path"', "parameter 'gpt_model_path' is missing"),
        ('"inflight_fused_batching"', '"${kind}"', "gpt_model_type must be one of"),
        ("/engine", "/nowhere", "gpt_model_path '.*/nowhere' holds no engine"),
        ('"sequence_length"', '"length"', "tensor 'sequence_length' is missing"),
        ('"min_tokens"', '"tokens"', "tensor 'min_tokens' is missing"),
        ("TYPE_UINT64", "TYPE_INT64", "'random_seed' must be TYPE_UINT64"),
        ("decoupled: true", "decoupled: false", "must be decoupled"),
    ],
)
def test_what_tensorrt_llm_can_not_do_without_is_known(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    knobs = ("triton_backend=tensorrtllm", f"engine_dir={engine(tmp_path)}", "role=lm")
    rendered(tmp_path, *knobs)
    assert check(tmp_path / "repository") == []
    replaced(old, new, "tensorrt_llm")(tmp_path / "repository")
    assert re.search(complaint, "\n".join(check(tmp_path / "repository")))


@pytest.mark.parametrize("family", ["cosyvoice2", "cosyvoice3"])
def test_only_cosyvoice3s_requests_bring_a_bias(
    tmp_path: Path, family: str, native3_folder: Path
) -> None:
    knobs = ("triton_backend=tensorrtllm", f"engine_dir={engine(tmp_path)}")
    rendered(tmp_path, *knobs, model=str(native3_folder) if family == "cosyvoice3" else "test")
    replaced('"embedding_bias"', '"bias"', "tensorrt_llm")(tmp_path / "repository")
    complaints = check(tmp_path / "repository")
    assert len(complaints) == (family == "cosyvoice3")
    assert all("tensor 'embedding_bias' is missing" in one for one in complaints)


def test_nothing_is_wrong_with_a_repository_that_is_not_ours(tmp_path: Path) -> None:
    """The original's, as its own script fills it: other code, no tensors and parameters of ours,
    and what TensorRT-LLM takes for its own defaults is left open."""
    engine_dir = engine(tmp_path)
    models = rendered(tmp_path, "triton_backend=tensorrtllm", f"engine_dir={engine_dir}")
    repository = tmp_path / "repository"
    for name, model in models.items():
        if name in ORIGINAL:
            known = tensors(ORIGINAL[name])
            if name != "tensorrt_llm":
                for tensor in [t for t in model.input if t.name not in known]:
                    model.input.remove(tensor)
                for tensor in [t for t in model.output if t.name not in known]:
                    model.output.remove(tensor)
                model.parameters.clear()
                model.parameters["model_dir"].string_value = "/models"
                (repository / name / "1" / "model.py").write_text("import torch\n")
            else:
                model.parameters["encoder_model_path"].string_value = "${encoder_engine_dir}"
                model.parameters["tokenizer_dir"].string_value = "${tokenizer_dir}"
                model.model_transaction_policy.decoupled = False
            (repository / name / "config.pbtxt").write_text(text_format.MessageToString(model))
        else:
            shutil.rmtree(repository / name)
    assert check(repository) == []
    replaced('"target_text"', '"text"', "cosyvoice2")(repository)
    assert re.search("input 'target_text' is missing", "\n".join(check(repository)))

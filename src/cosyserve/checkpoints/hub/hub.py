"""From the name of a published model to its folder on this machine.

`owner/name[/sub...]` is on Hugging Face, `ms:owner/name[/sub...]` on ModelScope; with a subfolder
only that is fetched. What is whole in the hub's cache is used when the hub can't be asked;
HF_HUB_OFFLINE=1 keeps both hubs from being asked at all. The folder is given as it was published.
"""

from __future__ import annotations

import re
from pathlib import Path

from cosyserve.checkpoints.hub import hugging_face, modelscope
from cosyserve.choices import LM_FILE
from cosyserve.errors import CheckpointError

_NATIVE = ("lm", "flow", "vocoder", "speech_tokenizer", "speaker_encoder")

# As `fnmatch` reads them: a star also crosses folders, a name without one is at the top.
FILE_PATTERNS = (
    "*.yaml",
    "*.json",  # with CosyVoice-BlankEN's; its model.safetensors is left out: llm.pt replaces it
    "*.txt",
    LM_FILE,
    "spk2info.pt",
    "flow.pt",
    "hift.pt",
    "campplus.onnx",
    "speech_tokenizer_v2.onnx",
    "speech_tokenizer_v2_25hz.onnx",
    "speech_tokenizer_v3.onnx",
    "model.safetensors",
    *(f"{part}.safetensors" for part in _NATIVE),
    *(f"{part}.onnx" for part in _NATIVE),
    "voices/*.safetensors",
)

# No part starts with a dot or a dash: '../x' is a path, '-x' an option, never a name.
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_NAME = re.compile(
    rf"(?P<modelscope>ms:)?(?P<repo>{_PART}/{_PART})(?:/(?P<sub>{_PART}(/{_PART})*))?"
)


def looks_like_hub_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def fetch_model(name: str, *, progress: bool, lm_file: str = LM_FILE) -> Path:
    """The folder of `name`: itself if it is one here, else downloaded as far as it isn't cached,
    with one of the LMs that it may have."""
    if name and Path(name).is_dir():
        return Path(name)
    match = _NAME.fullmatch(name)
    if match is None:
        raise CheckpointError(
            f"{name!r} is neither a folder here nor the name of a published model: give a folder, "
            "owner/name (Hugging Face) or ms:owner/name (ModelScope)"
        )
    fetch = modelscope.fetch if match["modelscope"] else hugging_face.fetch
    patterns = tuple(lm_file if pattern == LM_FILE else pattern for pattern in FILE_PATTERNS)
    return fetch(match["repo"], match["sub"] or "", patterns, progress=progress)

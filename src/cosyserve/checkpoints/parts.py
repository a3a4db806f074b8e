"""A model in parts: what readers of checkpoints return, and what is built or saved.

A part is a config and a state dict in our own names; a folder need not have
all of them (a speech LM alone, a token2wav alone), and parts of two folders can be joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cosyserve.checkpoints.config_data import as_checkpoint_error
from cosyserve.errors import CheckpointError
from cosyserve.models.config import ModelConfig
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.s3 import S3Tokenizer
from cosyserve.models.flow.flow import Flow
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.text import TextTokenizer

State = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]
M = TypeVar("M", bound=nn.Module)

MODULES: dict[str, Callable[[Any], nn.Module]] = {
    "lm": SpeechLM,
    "flow": Flow,
    "vocoder": HiFT,
    "speech_tokenizer": S3Tokenizer,
    "speaker_encoder": CamPlus,
}
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
SPEAKERS = "spk2info.pt"  # the original's file of voices, in whichever folder it lies
COUNTER = "num_batches_tracked"  # of batch norms: an integer that only training reads


@dataclass(frozen=True)
class Parts:
    """`states` has a state dict for each torch part, `onnx` a file for each that is not torch."""

    config: ModelConfig
    states: dict[str, State] = field(default_factory=dict)
    onnx: dict[str, Path] = field(default_factory=dict)
    tokenizer: TextTokenizer | None = None
    voices: tuple[Path, ...] = ()

    def joined(self, other: Parts) -> Parts:
        """The parts of both; the same part or voice in both is an error."""
        for what, ours, theirs in (
            ("part", self.names, other.names),
            ("voice", {v.name for v in self.voices}, {v.name for v in other.voices}),
        ):
            if both := sorted(ours & theirs):
                raise CheckpointError(f"both folders have the {what} '{both[0]}': remove one")
        if self.config.family != other.config.family:
            raise CheckpointError(
                f"the folders don't belong together: one is of {self.config.family}, the other of "
                f"{other.config.family}, and their speech tokens differ"
            )
        speaking = self if "lm" in self.names else other
        with as_checkpoint_error("the folders don't belong together"):
            config = replace(
                speaking.config,
                **{name: getattr(self._owner(name, other).config, name) for name in MODULES},
                fingerprint="-".join(
                    sorted(filter(None, {self.config.fingerprint, other.config.fingerprint}))
                ),
                speech=self.config.speech and other.config.speech,
            )
        return Parts(
            config=config,
            states=self.states | other.states,
            onnx=self.onnx | other.onnx,
            tokenizer=speaking.tokenizer,
            voices=self.voices + other.voices,
        )

    def only(self, names: Collection[str]) -> Parts:
        """Without the weights of other parts; their sizes stay."""
        return replace(
            self,
            states={name: state for name, state in self.states.items() if name in names},
            onnx={name: file for name, file in self.onnx.items() if name in names},
        )

    def _owner(self, name: str, other: Parts) -> Parts:
        return self if name in self.names else other

    @property
    def names(self) -> set[str]:
        return self.states.keys() | self.onnx.keys()

    def cast(self, dtype: torch.dtype) -> Parts:
        """LM and flow in another precision. The vocoder and what makes voices stay as they are."""
        states = {
            name: {key: value.to(dtype) for key, value in state.items()}
            if name in ("lm", "flow")
            else state
            for name, state in self.states.items()
        }
        return replace(self, states=states)


def voice_files(folder: Path) -> tuple[Path, ...]:
    """The voices that lie in a model's folder: files in `voices/`, and a spk2info.pt."""
    speakers = folder / SPEAKERS
    files = sorted((folder / "voices").glob("*.safetensors"))
    return (*files, speakers) if speakers.exists() else tuple(files)


class _SkipInit(TorchFunctionMode):
    """Skips the random initialization of modules built inside: on the meta device it has no effect,
    but torch would load its compiler for it, which takes a second and 100 MB."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        draws = getattr(func, "__module__", "") == nn.init.__name__
        return kwargs["tensor"] if draws else func(*args, **kwargs)


@contextmanager
def meta_device() -> Iterator[None]:
    """Modules built inside have shapes, and no weights."""
    with torch.device("meta"), _SkipInit():
        yield


_blanks: dict[tuple[Callable[[Any], Any], Any], Any] = {}


def blank(module: Callable[[Any], M], config: Any) -> M:
    """The module without its weights, to be looked at. It is kept for the next `build`: making one
    can take longer than reading its file."""
    found: M | None = _blanks.get((module, config))
    if found is None:
        with meta_device():
            made = module(config)
        found = _blanks.setdefault((module, config), made)
    return found


def leave_blank(module: nn.Module, config: Any) -> None:
    """Takes a module's weights and keeps it for the next `build`."""
    _blanks.setdefault((type(module), config), module.to("meta"))


def drop_blanks() -> None:
    """Forgets modules that were made for a look into a file, and that nobody built."""
    _blanks.clear()


def shapes(module: nn.Module) -> Shapes:
    """Keys and shapes of a module's state."""
    return {key: tuple(value.shape) for key, value in module.state_dict().items()}


def build(module: Callable[[Any], M], config: Any, state: State, origin: str) -> M:
    """A module that holds exactly these tensors; a mismatch names origin and key."""
    built: M | None = _blanks.pop((module, config), None)
    if built is None:
        with as_checkpoint_error(origin), meta_device():
            built = module(config)
    check(origin, state, shapes(built))
    built.load_state_dict(state, assign=True)
    built.requires_grad_(False)
    return built.eval()


def check(file: str, state: State, expected: Shapes) -> None:
    """Checks that the state has exactly the expected keys and shapes, all of one float type."""
    if missing := sorted(expected.keys() - state.keys()):
        raise CheckpointError(f"{file}: key '{missing[0]}' is missing ({len(missing)} in all)")
    if extra := sorted(state.keys() - expected.keys()):
        raise CheckpointError(f"{file}: unexpected key '{extra[0]}' ({len(extra)} in all)")
    floats = {key: tensor.dtype for key, tensor in state.items() if not key.endswith(COUNTER)}
    usual = Counter(floats.values()).most_common(1)[0][0]
    for key, tensor in state.items():
        if tuple(tensor.shape) != expected[key]:
            raise CheckpointError(
                f"{file}: '{key}' has shape {list(tensor.shape)}, expected {list(expected[key])}"
            )
        if floats.get(key, usual) not in FLOATS:
            raise CheckpointError(f"{file}: '{key}' has type {tensor.dtype}, expected floats")
        if floats.get(key, usual) != usual:
            raise CheckpointError(f"{file}: '{key}' has type {tensor.dtype}, others have {usual}")


def check_finite(file: str, state: State) -> None:
    """Checks that the state has no NaN and no infinity, without a copy."""
    for key, tensor in state.items():
        if tensor.is_floating_point() and tensor.numel():
            low, high = tensor.aminmax()
            if not (low.isfinite() and high.isfinite()):
                raise CheckpointError(f"{file}: '{key}' holds NaN or infinity")

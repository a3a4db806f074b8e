"""`python -m cosyserve.deploy.engine.say`: an engine says a sentence, which shows that it can.

TensorRT-LLM's runtime draws the tokens; flow and vocoder of a model folder can make them audible.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import TOKENS_PER_SECOND
from cosyserve.deploy.engine.source import EngineSource
from cosyserve.errors import CosyError, InputError
from cosyserve.models.config import LMConfig

TEXT = "Good morning. This is the first sentence of a new engine."
# The original's, for engines that can't draw in a repetition-aware way.
SAMPLING = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "repetition_penalty": 1.1}
SEED = 42
KV_CACHE_FRACTION = 0.6  # of the free memory


@dataclass(frozen=True, kw_only=True)
class SayOptions:
    """What an engine says, and where its speech goes."""

    text: str = TEXT
    speak: Path | None = None  # a model folder with flow and vocoder
    output: Path | None = None

    def check(self) -> None:
        if not self.text.strip():
            raise InputError("--text is empty: give a sentence")
        if (self.speak is None) != (self.output is None):
            raise InputError("--speak MODEL_DIR and -o FILE.wav belong together")
        if self.output is not None and self.output.suffix != ".wav":
            raise InputError(f"{self.output}: a wav file is written: call it so")
        if self.speak is not None and not self.speak.is_dir():
            raise InputError(f"--speak {self.speak}: no such folder")

    def arguments(self) -> list[str]:
        words = ["--text", self.text]
        if self.speak and self.output:
            words += ["--speak", str(self.speak), "--output", str(self.output)]
        return words


def prompt_ids(source: EngineSource, text: str) -> list[int]:
    """The ids that ask for the speech of a text."""
    ids = source.tokenizer().encode(text)
    if not ids or max(ids) >= source.lm.text_vocab:
        raise InputError(f"--text {text!r:.60}: not a text that the LM can read")
    return [source.lm.sos, *ids, source.lm.task]


def speech_tokens(ids: Sequence[int], lm: LMConfig) -> list[int]:
    """The speech tokens of ids that an engine drew, up to the first that ends the speech."""
    tokens = []
    for drawn in ids:
        token = drawn - lm.text_vocab
        if lm.eos <= token < lm.classes:
            break
        if not 0 <= token < lm.eos:
            raise CosyError(f"the engine drew the id {drawn}, which is no speech token")
        tokens.append(token)
    if not tokens:
        raise CosyError("the engine drew no speech token: it was built of other weights")
    return tokens


def draw(engine_dir: Path, prompt: list[int], lm: LMConfig) -> list[int] | None:
    """Ids that the engine draws; None in a process that is not the first of several."""
    import tensorrt_llm
    import torch
    from tensorrt_llm.runtime import ModelRunnerCpp

    least, most = (int(per_text * (len(prompt) - 2)) for per_text in lm.speech_per_text)
    runner = ModelRunnerCpp.from_dir(
        engine_dir=str(engine_dir),
        rank=tensorrt_llm.mpi_rank(),
        max_batch_size=1,
        max_input_len=len(prompt),
        max_output_len=most,
        kv_cache_free_gpu_memory_fraction=KV_CACHE_FRACTION,
    )
    end = lm.text_vocab + lm.eos
    answer = runner.generate(
        batch_input_ids=[torch.tensor(prompt, dtype=torch.int32)],
        max_new_tokens=most,
        min_tokens=least,
        end_id=end,
        pad_id=end,
        random_seed=SEED,
        return_dict=True,
        output_sequence_lengths=True,
        **SAMPLING,
    )
    if not answer:
        return None
    length = int(answer["sequence_lengths"][0][0])
    ids: list[int] = answer["output_ids"][0][0][len(prompt) : length].tolist()
    return ids


def make_audio(tokens: list[int], model_dir: Path, output: Path) -> None:
    """Writes the speech of tokens in the model's default voice."""
    from cosyserve.checkpoints.load import load_model
    from cosyserve.engine.compute.token2wav import Token2Wav
    from cosyserve.voices.shipped import default_voice

    model = load_model(model_dir)
    token2wav = Token2Wav(*model.need_token2wav())
    state = token2wav.begin(default_voice(model), with_prompt=True, seed=SEED, speed=1.0)
    ((samples, _),) = token2wav.whole([state], [tokens])
    output.write_bytes(encode(samples, AudioFormat.WAV))


def say(source: EngineSource, engine_dir: Path, options: SayOptions) -> str | None:
    """Has the engine say a sentence -> what came of it."""
    prompt = prompt_ids(source, options.text)
    began = time.monotonic()
    ids = draw(engine_dir, prompt, source.lm)
    if ids is None:
        return None
    seconds = time.monotonic() - began
    tokens = speech_tokens(ids, source.lm)
    if options.speak and options.output:
        make_audio(tokens, options.speak, options.output)
    return (
        f"{len(prompt) - 2} text tokens became {len(tokens)} speech tokens, "
        f"{len(tokens) / TOKENS_PER_SECOND:.1f} s of speech, in {seconds:.1f} s with loading"
    )


def main(arguments: Sequence[str]) -> None:
    parser = ArgumentParser("cosyserve.deploy.engine.say", description=__doc__)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--engine-dir", type=Path, required=True)
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--speak", type=Path)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    options = SayOptions(text=given.text, speak=given.speak, output=given.output)
    try:
        if said := say(EngineSource.read(given.model_dir), given.engine_dir, options):
            print(said)
    except CosyError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""`python -m cosyserve.deploy.engine.say`: an engine says a sentence, which shows that it can.

TensorRT-LLM's runtime draws the tokens; flow and vocoder of a model folder can make them audible.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyserve.audio import AudioFormat, encode
from cosyserve.backends.protocols import LMRequest
from cosyserve.backends.vocabulary import Vocabulary
from cosyserve.contracts import TOKENS_PER_SECOND, Floats
from cosyserve.deploy.engine.source import EngineSource
from cosyserve.errors import CosyError, InputError
from cosyserve.text import END_OF_PROMPT

TEXT = "Good morning. This is the first sentence of a new engine."
# The original's, for engines that can't draw in a repetition-aware way.
SAMPLING = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "repetition_penalty": 1.1}
SEED = 42
KV_CACHE_FRACTION = 0.6  # of the free memory
SPEECH_ALONE = "speech_alone"  # the name of a logits processor


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


def lm_request(source: EngineSource, text: str) -> LMRequest:
    """What the LM is asked for the speech of a text, in nobody's voice."""
    tokenizer, lm = source.tokenizer(), source.lm
    ids = tokenizer.encode(text)
    if not ids or max(ids) >= lm.text_vocab:
        raise InputError(f"--text {text!r:.60}: not a text that the LM can read")
    lead = tokenizer.encode(lm.preamble + END_OF_PROMPT) if lm.preamble else []
    least, most = (int(per_text * len(ids)) for per_text in lm.speech_per_text)
    return LMRequest((*lead, *ids), (), least, most, SEED)


def speech_tokens(ids: Sequence[int], vocabulary: Vocabulary) -> tuple[int, ...]:
    """The speech tokens of ids that an engine drew, up to the first that ends the speech."""
    end = next((n for n, drawn in enumerate(ids) if drawn in vocabulary.ends), len(ids))
    tokens = vocabulary.tokens(ids[:end])
    if not tokens:
        raise CosyError("the engine drew no speech token: it was built of other weights")
    return tokens


def speech_alone(bias: Floats) -> Callable[..., None]:
    """A logits processor that adds a bias, on the stream that it is called for."""
    import torch

    row = torch.from_numpy(bias)

    def add(_request: int, logits: Any, _drawn: object, stream: int | None, *_: object) -> None:
        theirs: Any = torch.cuda.ExternalStream
        with torch.cuda.stream(theirs(stream) if stream else None):
            logits[..., : len(row)] += row.to(logits)

    return add


def draw(engine_dir: Path, request: LMRequest, vocabulary: Vocabulary) -> list[int] | None:
    """Ids that the engine draws; None in a process that is not the first of several."""
    import tensorrt_llm
    import torch
    from tensorrt_llm.runtime import ModelRunnerCpp

    bias, prompt = vocabulary.bias, vocabulary.prompt(request)
    processors = {} if bias is None else {SPEECH_ALONE: speech_alone(bias)}
    runner = ModelRunnerCpp.from_dir(
        engine_dir=str(engine_dir),
        rank=tensorrt_llm.mpi_rank(),
        max_batch_size=1,
        max_input_len=len(prompt),
        max_output_len=request.max_tokens,
        kv_cache_free_gpu_memory_fraction=KV_CACHE_FRACTION,
        logits_processor_map=processors or None,
    )
    answer = runner.generate(
        batch_input_ids=[torch.tensor(prompt, dtype=torch.int32)],
        max_new_tokens=request.max_tokens,
        min_tokens=request.min_tokens,
        end_id=vocabulary.end,
        pad_id=vocabulary.end,
        random_seed=request.seed,
        logits_processor_names=list(processors) or None,
        return_dict=True,
        output_sequence_lengths=True,
        **SAMPLING,
    )
    if not answer:
        return None
    length = int(answer["sequence_lengths"][0][0])
    ids: list[int] = answer["output_ids"][0][0][len(prompt) : length].tolist()
    return ids


def make_audio(tokens: Sequence[int], model_dir: Path, output: Path) -> None:
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
    request, vocabulary = lm_request(source, options.text), Vocabulary.of(source.lm)
    began = time.monotonic()
    ids = draw(engine_dir, request, vocabulary)
    if ids is None:
        return None
    seconds = time.monotonic() - began
    tokens = speech_tokens(ids, vocabulary)
    if options.speak and options.output:
        make_audio(tokens, options.speak, options.output)
    return (
        f"{len(request.text)} text tokens became {len(tokens)} speech tokens, "
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

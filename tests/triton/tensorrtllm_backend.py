"""A backend of Triton's in Python that keeps the rules of the TensorRT-LLM backend, without an
engine: what stops that one from loading stops this one, and what fails its requests fails here.

Its tokens follow from the request's seed: number n is (seed + 7 n) mod 6561. There are as many as
must be, at least 30. They are CosyVoice3's where a bias leaves those alone.
"""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
# read without a default: whoever has none of them can't be loaded
NEEDED = ("gpt_model_type", "tokenizer_dir", "xgrammar_tokenizer_info_path")
NEEDED += ("guided_decoding_backend",)
BATCHING = ("V1", "v1", "inflight_batching", "inflight_fused_batching")
OUTPUTS = ("output_ids", "sequence_length")
# what versions before and after May 2025 read
NAMES = (("min_length", "min_tokens"), ("random_seed", "seed"))
SPEECH, SHORTEST = 151_663, 30
VOCABULARY = 158_720  # of an engine of CosyVoice3's, as published


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.decoupled = config["model_transaction_policy"]["decoupled"]
        values = {key: value["string_value"] for key, value in config["parameters"].items()}
        for name in NEEDED:
            if name not in values:
                raise pb_utils.TritonModelException(f"Cannot find parameter with name: {name}")
        if values["gpt_model_type"] not in BATCHING:
            raise pb_utils.TritonModelException("Invalid gpt_model_type")
        if not Path(values["gpt_model_path"]).exists():
            raise pb_utils.TritonModelException("Both encoder and decoder model paths are empty")

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                for ids in self.answers(request):
                    sender.send(pb_utils.InferenceResponse(self.outputs(request, ids)))
            except Exception as error:
                failed = pb_utils.InferenceResponse([], pb_utils.TritonError(str(error)))
                sender.send(failed, flags=FINAL)
            else:
                sender.send(flags=FINAL)

    def answers(self, request):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        bias = given.pop("embedding_bias", None)
        for name, array in given.items():
            if name != "input_ids" and array.shape != (1,):
                raise ValueError(f"{name} has shape {array.shape}")
        if given["input_ids"].shape[1] != given["input_lengths"][0]:
            raise ValueError("input_ids are not as many as input_lengths says")
        if given["streaming"][0] and not self.decoupled:
            raise ValueError("Streaming is only supported in decoupled mode")
        for earlier, later in NAMES:
            if given.get(earlier) != given.get(later):
                raise ValueError(f"what {earlier} says is not what {later} says")
        count = max(SHORTEST, int(given["min_tokens"][0]))
        if count > given["request_output_len"][0]:
            raise ValueError("min_tokens is more than request_output_len")
        seed, end, speech = int(given["seed"][0]), int(given["end_id"][0]), SPEECH
        if bias is not None:
            if bias.shape != (1, VOCABULARY):
                raise ValueError("The embedding bias shape is not as expected")
            *tokens, last = np.flatnonzero(bias[0] == 0).tolist()
            if (len(tokens), last) != (6561, end):
                raise ValueError("the bias lets more be drawn than speech and its end")
            speech = tokens[0]
        for number in range(count):
            yield [speech + (seed + 7 * number) % 6561]
        yield [end]

    def outputs(self, request, ids):
        for name in OUTPUTS:
            if name not in request.requested_output_names():
                raise ValueError(f"{name} tensor must be present in list of output tensors")
        values = np.array([[ids]], np.int32), np.array([[len(ids)]], np.int32)
        pairs = zip(OUTPUTS, values, strict=True)
        return [pb_utils.Tensor(name, value) for name, value in pairs]

"""A Triton model with the tensors of `cosyvoice2` that does what its target_text says, as JSON.

{"chunks": 3, "samples": 2400, "pause": 0.0, "echo": false,
 "fail": "INVALID_ARG", "fail_at": 0, "words": "as you wish"}

Any other text is one chunk. Chunk n holds the value n / 100; `echo` says instead what came in.
Whoever is cancelled is counted in the file `cancelled` of the model's folder.
"""

import json
import threading
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.decoupled = json.loads(args["model_config"])["model_transaction_policy"]["decoupled"]
        self.notes = Path(args["model_repository"]) / "cancelled"
        self.notes.touch()

    def execute(self, requests):
        if not self.decoupled:
            return [self.whole(request) for request in requests]
        for request in requests:
            threading.Thread(target=self.speak, args=(request,)).start()
        return None

    def whole(self, request):
        try:
            samples = np.concatenate(list(self.chunks(request, request.is_cancelled)))
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(str(error), error.code))
        return pb_utils.InferenceResponse([pb_utils.Tensor("waveform", samples[None])])

    def speak(self, request):
        sender = request.get_response_sender()
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        try:
            for samples in self.chunks(request, sender.is_cancelled):
                tensor = pb_utils.Tensor("waveform", samples[None])
                sender.send(pb_utils.InferenceResponse([tensor]))
        except pb_utils.TritonModelException as error:
            failed = pb_utils.TritonError(str(error), error.code)
            sender.send(pb_utils.InferenceResponse([], failed), flags=final)
            return
        sender.send(flags=final)

    def chunks(self, request, is_cancelled):
        text = self.text(request, "target_text")
        script = json.loads(text) if text.startswith("{") else {}
        if script.get("echo"):
            yield self.heard(request)
            return
        for number in range(script.get("chunks", 1)):
            if "fail" in script and number == script.get("fail_at", 0):
                self.fail(script["fail"], script.get("words", "as you wish"))
            until = time.monotonic() + script.get("pause", 0.0)
            while True:
                if is_cancelled():
                    with self.notes.open("a") as notes:
                        notes.write("x")
                    self.fail("CANCELLED", "cancelled")
                if time.monotonic() >= until:
                    break
                time.sleep(0.02)
            yield np.full(script.get("samples", 2400), number / 100, np.float32)

    def fail(self, code, words):
        error = pb_utils.TritonModelException(words)
        error.code = getattr(pb_utils.TritonError, code)
        raise error

    def heard(self, request):
        """Length of the recording, its stated length, its sum, its text's length; in 100 000ths."""
        wav = pb_utils.get_input_tensor_by_name(request, "reference_wav")
        if wav is None:
            return np.zeros(0, np.float32)
        length = pb_utils.get_input_tensor_by_name(request, "reference_wav_len").as_numpy()
        samples = wav.as_numpy()
        text = self.text(request, "reference_text")
        figures = [samples.size, length[0, 0], np.abs(samples).sum(), len(text)]
        return np.array([figure / 100_000 for figure in figures], np.float32)

    def text(self, request, name):
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0, 0].decode()

"""A real tritonserver whose models do what a test tells them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyserve.triton.process import Ports, TritonProcess
from tests.waiting import wait_until

CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 16
model_transaction_policy {{ decoupled: {decoupled} }}
input [
  {{ name: "reference_wav" data_type: TYPE_FP32 dims: [-1] optional: true }},
  {{ name: "reference_wav_len" data_type: TYPE_INT32 dims: [1] optional: true }},
  {{ name: "reference_text" data_type: TYPE_STRING dims: [1] optional: true }},
  {{ name: "target_text" data_type: TYPE_STRING dims: [1] }}
]
output [ {{ name: "waveform" data_type: TYPE_FP32 dims: [-1] }} ]
dynamic_batching {{ default_queue_policy {{ max_queue_size: 4 }} }}
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
STREAMING, OFFLINE = "cosyvoice2", "cosyvoice2_offline"


@dataclass(frozen=True)
class Scripted:
    process: TritonProcess
    repository: Path

    @property
    def grpc(self) -> str:
        return f"localhost:{self.process.ports.grpc}"

    @property
    def http(self) -> str:
        return f"localhost:{self.process.ports.http}"

    def cancelled(self, model: str = STREAMING) -> int:
        return (self.repository / model / "cancelled").stat().st_size

    def wait_cancelled(self, count: int, model: str = STREAMING) -> None:
        wait_until(lambda: self.cancelled(model) >= count, "the model was not told")


def write_repository(folder: Path) -> None:
    for name, decoupled in ((STREAMING, "true"), (OFFLINE, "false")):
        (folder / name / "1").mkdir(parents=True)
        config = CONFIG.format(name=name, decoupled=decoupled)
        (folder / name / "config.pbtxt").write_text(config)
        shutil.copy(Path(__file__).with_name("scripted_model.py"), folder / name / "1" / "model.py")


@contextmanager
def scripted(
    folder: Path, ports: Ports | None = None, options: Sequence[str] = ()
) -> Iterator[Scripted]:
    if not folder.exists():
        write_repository(folder)
    process = TritonProcess(folder, ports or Ports.free(), options)
    try:
        process.wait_ready()
        yield Scripted(process, folder)
    finally:
        process.kill()


def script(**orders: Any) -> str:
    return json.dumps(orders)

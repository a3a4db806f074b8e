"""Load on a speech server, and what its listeners would hear of it.

Knows OpenAI's speech API over HTTP and the speech models of a Triton server; knows no engine, no
model, nothing of how the server is built.
"""

from cosyserve.bench.client import Endpoint, UnreachableError
from cosyserve.bench.items import HubDataset, Manifest, Sentences, Single
from cosyserve.bench.load import ClosedLoop, OpenLoop
from cosyserve.bench.options import BenchOptions
from cosyserve.bench.plot import write_plot
from cosyserve.bench.report import Report, read_baseline, write_report
from cosyserve.bench.run import run_bench, speak_once
from cosyserve.bench.table import baseline_table, run_table
from cosyserve.bench.triton import TritonEndpoint
from cosyserve.bench.triton_files import write_triton_files

__all__ = [
    "BenchOptions",
    "ClosedLoop",
    "Endpoint",
    "HubDataset",
    "Manifest",
    "OpenLoop",
    "Report",
    "Sentences",
    "Single",
    "TritonEndpoint",
    "UnreachableError",
    "baseline_table",
    "read_baseline",
    "run_bench",
    "run_table",
    "speak_once",
    "write_plot",
    "write_report",
    "write_triton_files",
]

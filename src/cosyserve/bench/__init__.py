"""Load on a speech server, and what its listeners would hear of it.

The server is any with OpenAI's speech API over HTTP, or a Triton server with the speech models.
"""

from cosyserve.bench.client import Endpoint, NoServerError
from cosyserve.bench.items import HubDataset, Manifest, Sentences, Single
from cosyserve.bench.load import ClosedLoop, OpenLoop
from cosyserve.bench.plot import write_plot
from cosyserve.bench.report import BenchOptions, Report, read_baseline, write_report
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
    "NoServerError",
    "OpenLoop",
    "Report",
    "Sentences",
    "Single",
    "TritonEndpoint",
    "baseline_table",
    "read_baseline",
    "run_bench",
    "run_table",
    "speak_once",
    "write_plot",
    "write_report",
    "write_triton_files",
]

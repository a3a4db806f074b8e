"""Load on a speech server, and what its listeners would hear of it.

The server is any with OpenAI's speech API over HTTP, or Triton servers with the speech models. What
is measured without a server is in `offline`.
"""

from cosyserve.bench.client import Endpoint, NoServerError
from cosyserve.bench.items import HubDataset, Manifest, Sentences, Single
from cosyserve.bench.load import ClosedLoop, OpenLoop
from cosyserve.bench.report.plot import write_plot
from cosyserve.bench.report.report import BenchOptions, Report, read_baseline, write_report
from cosyserve.bench.report.table import baseline_table, run_table
from cosyserve.bench.run import run_bench, speak_once
from cosyserve.bench.triton.client import TritonEndpoint
from cosyserve.bench.triton.files import bench_triton
from cosyserve.bench.triton.sweep import Sweep, run_sweep, sweep_table, write_sweep
from cosyserve.bench.wav_files import make_folder

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
    "Sweep",
    "TritonEndpoint",
    "baseline_table",
    "bench_triton",
    "make_folder",
    "read_baseline",
    "run_bench",
    "run_sweep",
    "run_table",
    "speak_once",
    "sweep_table",
    "write_plot",
    "write_report",
    "write_sweep",
]

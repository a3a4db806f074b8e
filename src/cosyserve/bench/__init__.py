"""Load on a speech server, and what its listeners would hear of it.

Knows OpenAI's speech API over HTTP; knows no engine, no model, nothing of how the server is built.
"""

from cosyserve.bench.client import Endpoint, UnreachableError
from cosyserve.bench.items import HubDataset, Manifest, Sentences
from cosyserve.bench.load import ClosedLoop, OpenLoop
from cosyserve.bench.options import BenchOptions
from cosyserve.bench.plot import write_plot
from cosyserve.bench.report import Report, read_baseline, write_report
from cosyserve.bench.run import run_bench
from cosyserve.bench.table import baseline_table, run_table

__all__ = [
    "BenchOptions",
    "ClosedLoop",
    "Endpoint",
    "HubDataset",
    "Manifest",
    "OpenLoop",
    "Report",
    "Sentences",
    "UnreachableError",
    "baseline_table",
    "read_baseline",
    "run_bench",
    "run_table",
    "write_plot",
    "write_report",
]

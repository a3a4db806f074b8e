"""What many tests share: their tiers, a model and a voice, folders, a scripted Triton server.

Every test is of one tier, named by a marker: `unit` tests start no process, listen on no socket and
interpret no kernel, which is checked; they are what `make quick` runs.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.testing  # at its first import it starts a process
import pytest
import torch
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from cosyserve.checkpoints.load import load_folder, load_model
from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.prepare import prepare
from cosyserve.checkpoints.published import read
from cosyserve.checkpoints.published.lm_forms import write_lm
from cosyserve.contracts import Recording, Voice
from cosyserve.voices.enroll import enroll
from cosyserve.voices.file import save_voice
from tests import preloaded, proven, published
from tests.triton.scripted import Scripted, scripted

# A busy machine is no failure; every run tries other cases.
settings.register_profile("cosyserve", deadline=None, max_examples=40)
settings.load_profile("cosyserve")
os.environ.setdefault("COSYSERVE_MODEL", "test")  # the small voice takes its time
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # as `cosyserve serve` has it
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests are small: threads only wait for each other
torch.set_num_threads(1)
# Clients here talk to this machine alone, and certificates of others take 40 ms of each to read.
os.environ["SSL_CERT_DIR"] = os.devnull
os.environ.pop("SSL_CERT_FILE", None)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # as long as nobody has imported triton

X86 = platform.machine() == "x86_64"
# The package that carries a tritonserver is for x86-64 and these versions of Python.
PACKAGED = X86 and sys.version_info < (3, 13)
NO_TRITON = not (PACKAGED or find_spec("pytriton") or shutil.which("tritonserver"))
NO_TRITON_REASON = "no package has a tritonserver for this processor, or for this Python"
# Tests of the very bits of torch's normal numbers, whose last ones are others elsewhere.
X86_BITS = {"test_the_fixed_noise_is_the_published_one"}

# Folders and files below tests/ by tier, those that take longest first; single tests of other files
# have the marker themselves.
TIERS = {
    "triton": (
        "triton/",
        "deploy/triton/test_here.py",
        "deploy/stages/test_for_real.py",
        "bench/triton/test_client.py",
        "bench/triton/test_sweep.py",
    ),
    "gpu": ("engine/compute/test_cuda.py", "models/test_cuda.py"),
    "kernels": (
        "models/lm/test_fused.py",
        "models/flow/fused/test_encoder.py",
        "models/flow/fused/test_dit.py",
        "models/flow/fused/test_rotary_dit.py",
        "models/flow/fused/test_unet.py",
        "models/flow/fused/test_between.py",
        "engine/compute/graphs/test_packed_flow.py",
        "engine/compute/graphs/test_token2wav_queue.py",
        "benchmarks/test_compile.py",
        "benchmarks/test_gpu.py",
        "models/vocoder/test_fused.py",
    ),
    "recipes": ("training/test_recipes.py",),
    "slow": (
        "checkpoints/onnx/",
        "checkpoints/test_broken_folders.py",
        "checkpoints/test_broken_native.py",
        "checkpoints/test_native.py",
        "engine/compute/test_static.py",
        "engine/split/",
        "engine/test_speak.py",
    ),
    "server": (
        "test_docs.py",
        "test_nano.py",
        "test_crowds.py",
        "engine/workers/",
        "engine/test_text_stream.py",
        "benchmarks/",
        "training/",
        "cli/",
        "deploy/containers/test_fronts.py",
        "deploy/containers/test_helm.py",
        "deploy/containers/test_scaling.py",
        "backends/",
        "bench/",
        "checkpoints/hub/",
        "gateway/",
        "clients/",
        "golden/",
        "ray/test_engine.py",
        "ray/test_links.py",
        "test_server.py",
        "text/test_number_process.py",
        "voices/shelves/test_redis.py",
    ),
}


class ByFile(LoadFileScheduling):
    """A file's tests run in one process, as do all that start a tritonserver: two that start at
    once can fail."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0].removeprefix("tests/")
        return "triton" if path.startswith(TIERS["triton"]) else path

    def remove_node(self, node: WorkerController) -> str | None:
        """The test in which a process died has failed; xdist would try it again, without end."""
        units = self.assigned_work.pop(node)
        left = {test: scope for scope, unit in units.items() for test in unit if not unit[test]}
        if not left:
            return None
        died = next(iter(left))
        del left[died]
        for test, scope in left.items():
            self.workqueue.setdefault(scope, {})[test] = False
        for other in self.assigned_work:
            self._reschedule(other)
        return died


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile | None:
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives every test its tier; the longest begin: processes that share them then end together."""
    places = [(place, tier) for tier in TIERS for place in TIERS[tier]]
    skipped = {tier for tier in proven.SOURCES if proven.proven(tier)}
    order: dict[pytest.Item, int] = {}
    for item in items:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        marked = next((tier for tier in TIERS if item.get_closest_marker(tier)), "unit")
        order[item], tier = len(places), marked
        for number, (place, tier_of_place) in enumerate(places):
            if path.startswith(place):
                order[item], tier = number, tier_of_place
                break
        item.add_marker(tier)
        if tier in skipped:
            item.add_marker(pytest.mark.skip(reason=f"these have passed: `make {tier}` runs them"))
        if tier == "triton" and NO_TRITON:
            item.add_marker(pytest.mark.skip(reason=NO_TRITON_REASON))
        if item.name in X86_BITS and not X86:
            item.add_marker(pytest.mark.skip(reason="its numbers are those of x86-64"))
    items.sort(key=lambda item: order[item])


@pytest.fixture(autouse=True)
def only_what_the_tier_allows(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.node.get_closest_marker("unit"):

        def refuse(*_: object, **__: object) -> None:
            pytest.fail("a unit test starts no process and listens on no socket: mark it 'server'")

        monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
        monkeypatch.setattr(subprocess.Popen, "__del__", lambda _: None)
        monkeypatch.setattr(socket.socket, "bind", refuse)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `cosyserve` and `python`, which have imported torch already."""
    with preloaded.programs(tmp_path_factory.mktemp("bin")) as folder:
        yield folder


@pytest.fixture
def forked(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers and workers that a test starts need not import torch."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(programs / "python"))


@pytest.fixture(scope="session")
def model() -> Model:
    """The test model: small, with random weights."""
    return load_model("test", device="cpu")


def noise() -> Recording:
    """87 tokens long."""
    samples = np.random.default_rng(0).standard_normal(87 * 960).astype(np.float32)
    return Recording(0.1 * samples, 24_000, "A few words.", name="noise")


@pytest.fixture(scope="session")
def voice(model: Model) -> Voice:
    return enroll(model, noise())


@pytest.fixture(scope="session", params=["test", "cosyvoice3"])
def either_model(request: pytest.FixtureRequest) -> Model:
    """The test model, which is of CosyVoice2's kind, and a tiny CosyVoice3, for tests in whose
    subject the families differ."""
    if request.param == "test":
        model: Model = request.getfixturevalue("model")
        return model
    tiny = load_folder(request.getfixturevalue("cosyvoice3_folder"))
    return replace(tiny, config=replace(tiny.config, speech=False))


@pytest.fixture(scope="session")
def either_voice(either_model: Model) -> Voice:
    """The voice of `either_model`: the recording is that of `voice`."""
    return enroll(either_model, noise())


@pytest.fixture(scope="session")
def cosyvoice2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "cosyvoice2"
    published.write_cosyvoice2(folder)
    return folder


@pytest.fixture(scope="session")
def cosyvoice3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "cosyvoice3"
    published.write_cosyvoice3(folder)
    return folder


@pytest.fixture(scope="session")
def native3_folder(tmp_path_factory: pytest.TempPathFactory, cosyvoice3_folder: Path) -> Path:
    """What `cosyserve prepare` makes of a CosyVoice3 folder, with a voice."""
    folder = tmp_path_factory.mktemp("native")
    file = folder / "default.safetensors"
    save_voice(enroll(load_folder(cosyvoice3_folder), noise()), file)
    prepare(
        *([str(cosyvoice3_folder)], folder / "cosyvoice3", None),
        progress=False,
        with_voices=lambda parts: replace(parts, voices=(file,)),
    )
    return folder / "cosyvoice3"


@pytest.fixture(scope="session")
def hugging_face_lm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "lm"
    published.write_hugging_face_lm(folder)
    return folder


@pytest.fixture(scope="session")
def hugging_face_lm3_folder(
    tmp_path_factory: pytest.TempPathFactory, cosyvoice3_folder: Path
) -> Path:
    """CosyVoice3's LM."""
    folder = tmp_path_factory.mktemp("published") / "lm3"
    write_lm(read(cosyvoice3_folder, ("lm",)), "hf", folder, "cosyvoice3")
    return folder


@pytest.fixture(scope="session")
def token2wav_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "token2wav"
    published.write_token2wav(folder)
    return folder


@pytest.fixture(scope="session")
def scripted_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    if NO_TRITON:
        pytest.skip(NO_TRITON_REASON)
    with scripted(tmp_path_factory.mktemp("triton") / "repository") as running:
        yield running

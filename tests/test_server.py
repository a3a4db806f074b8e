"""What the server starts, by its settings and the command line."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from cosyserve import server
from cosyserve.backends.llm_server import LLMServer
from cosyserve.choices import LLMSampling
from cosyserve.contracts import ModelInfo, VoiceFormat
from cosyserve.deploy.triton.here import settings_here
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.errors import InputError
from cosyserve.gateway.policy import Policy
from cosyserve.server import worker_options
from cosyserve.settings import Settings

PAIR = {"lm_device": "cuda:0", "token2wav_device": "cuda:1"}


def devices(settings: Settings, *devices: str) -> list[tuple[str, tuple[str, ...]]]:
    options = worker_options(settings, devices)
    return [(option.device, option.token2wav_devices) for option in options]


@pytest.fixture
def pair_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PAIR.items():
        monkeypatch.setenv(f"COSYSERVE_{name.upper()}", value)


def test_every_device_has_a_worker() -> None:
    assert devices(Settings.read()) == [("auto", ())]
    assert devices(Settings.read(), "cpu", "cuda:1") == [("cpu", ()), ("cuda:1", ())]


def test_every_model_has_its_workers() -> None:
    options = worker_options(Settings.read(model="a, b,a"), ["cpu", "cuda"])
    found = [(option.model, option.device) for option in options]
    assert found == [("a", "cpu"), ("a", "cuda"), ("b", "cpu"), ("b", "cuda")]
    pools = server.Pools(options)
    assert [len(pool.workers) for pool in pools.pools] == [2, 2]


class NamedWorker:
    """Its model has the name that lies in the folder."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options, self.started = options, False

    async def start(self) -> None:
        self.started = True

    @property
    def model(self) -> ModelInfo:
        return ModelInfo(Path(self.options.model).name, VoiceFormat("cosyvoice2"), True, {})


def test_models_start_together_and_have_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WorkerEngine", NamedWorker)
    pools = server.Pools(worker_options(Settings.read(model="a,/models/b"), ["cpu", "cuda"]))
    asyncio.run(pools.start())
    assert all(worker.started for pool in pools.pools for worker in pool.workers)
    assert pools.names == ["a", "b"]
    assert pools.named("/models/b", Policy()) is pools.pools[1]
    same = server.Pools(worker_options(Settings.read(model="/one/a,/two/a"), ["cpu"]))
    with pytest.raises(InputError, match="two models are named 'a'"):
        asyncio.run(same.start())


@pytest.mark.parametrize(
    "given",
    [{"triton": True}, {"engine": "triton://here:8001"}, {"llm_url": "http://localhost:8000/v1"}],
)
def test_several_models_are_for_workers_here(given: dict[str, Any], tmp_path: Path) -> None:
    triton = bool(given.pop("triton", False))
    settings = Settings.read(model="test,nano", voice_store=str(tmp_path), **given)
    with pytest.raises(InputError, match="several models are for workers"):
        server.serve(settings, triton=triton)


def test_two_devices_for_one_model() -> None:
    assert devices(Settings.read(**PAIR)) == [("cuda:0", ("cuda:1",))]
    several = PAIR | {"token2wav_device": "cuda:1, cuda:2,cuda:3"}
    assert devices(Settings.read(**several)) == [("cuda:0", ("cuda:1", "cuda:2", "cuda:3"))]


@pytest.mark.usefixtures("pair_in_the_environment")
def test_devices_of_the_command_line_go_before_a_pair_of_the_environment() -> None:
    assert devices(Settings.read()) == [("cuda:0", ("cuda:1",))]
    assert devices(Settings.read(), "cpu") == [("cpu", ())]


@pytest.mark.parametrize(
    ("pair", "others"),
    [({"lm_device": "cpu"}, ()), ({"token2wav_device": "cpu"}, ()), (PAIR, ("cpu",))],
)
def test_half_a_pair_or_more_than_a_pair_is_an_error(
    pair: dict[str, str], others: tuple[str, ...]
) -> None:
    with pytest.raises(InputError, match="together"):
        devices(Settings.read(**pair), *others)


def test_a_worker_is_told_what_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYSERVE_SLOTS", "3")
    monkeypatch.setenv("COSYSERVE_MAX_WAIT_SECONDS", "0.5")
    monkeypatch.setenv("COSYSERVE_MAX_UNREAD_BYTES", str(2 << 20))
    settings = Settings.read(model="test", dtype="bfloat16", profile="throughput")
    (options,) = worker_options(settings, ())
    assert (options.model, options.dtype, options.profile) == ("test", "bfloat16", "throughput")
    assert (options.slots, options.max_wait) == (3, 0.5)
    assert (options.waiting, options.voice_cache_bytes) == (64, 64 << 20)
    assert options.max_unread_bytes == 2 << 20


URL = "http://localhost:8000/v1"


def test_a_worker_without_an_llm_server_draws_itself() -> None:
    (options,) = worker_options(Settings.read(), ())
    assert options.llm is None


def test_an_llm_server_is_asked_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "API_KEY": "secret",
        "TEMPERATURE": "0.7",
        "TOP_P": "0.9",
        "TOP_K": "40",
        "REPETITION_PENALTY": "1.2",
        "MAX_TOKENS": "500",
        "CONNECT_SECONDS": "1",
        "FIRST_SECONDS": "3",
        "BETWEEN_SECONDS": "4",
    }.items():
        monkeypatch.setenv(f"COSYSERVE_LLM_{name}", value)
    settings = Settings.read(llm_url=URL, llm_model="lm", llm_prompt="chat")
    (options,) = worker_options(settings, ())
    assert options.llm == LLMServer(
        URL,
        "lm",
        "secret",
        "chat",
        sampling=LLMSampling(0.7, 0.9, 40, 1.2, 500),
        connect_seconds=1,
        first_seconds=3,
        between_seconds=4,
    )
    assert "secret" not in repr(options)
    knobs = settings_here(settings, [("auto", "")])
    assert (knobs.llm_url, knobs.llm_prompt, knobs.llm_api_key) == (URL, "chat", "secret")
    assert (knobs.llm_top_k, knobs.llm_max_tokens, knobs.llm_first_seconds) == (40, 500, 3)
    assert "secret" not in repr(knobs)


def test_defaults_of_an_llm_server_are_one() -> None:
    (options,) = worker_options(Settings.read(llm_url=URL), ())
    assert options.llm == LLMServer(URL, "cosyvoice2_llm")
    fields = {name for name in TritonSettings.model_fields if name.startswith("llm_")}
    for name in fields & Settings.model_fields.keys() - {"llm_api_key"}:
        assert TritonSettings.model_fields[name].default == Settings.model_fields[name].default


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"llm_url": "localhost:8000"}, "llm_url 'localhost:8000' is no URL"),
        ({"llm_url": "http://localhost:99999/v1"}, "is no URL of an LLM server"),
        ({"llm_model": "lm"}, "--llm-model is for an LLM server: give --llm-url"),
        ({"llm_url": URL} | PAIR, "give --device, and no --lm-device"),
    ],
)
def test_what_an_llm_server_does_not_go_with(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        worker_options(Settings.read(**options), ())


def test_an_engine_elsewhere_has_its_own_lm() -> None:
    with pytest.raises(InputError, match="leave out --engine"):
        server.serve(Settings.read(llm_url=URL, engine="triton://here:8001", voice_store="v"))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"devices": ["cuda:0", "cuda:1"]}, "each worker has one --device"),
        ({"triton": True}, "there is no --triton"),
        ({"triton_settings": ["slots=2"]}, "--set is for --triton"),
    ],
)
def test_what_ray_does_not_go_with(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        server.serve(Settings.read(engine="ray"), **given)


def test_without_ray_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "cosyserve.ray.engine", raising=False)
    with pytest.raises(InputError, match=r"pip install 'cosyserve\[ray\]'"):
        server.serve(Settings.read(engine="ray", model="test"))

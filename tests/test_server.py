"""What the server starts, by its settings and the command line."""

from __future__ import annotations

import pytest

from cosyserve.errors import InputError
from cosyserve.server import worker_options
from cosyserve.settings import Settings

PAIR = {"lm_device": "cuda:0", "token2wav_device": "cuda:1"}


def devices(settings: Settings, *devices: str) -> list[tuple[str, str]]:
    options = worker_options(settings, devices)
    return [(option.device, option.token2wav_device) for option in options]


@pytest.fixture
def pair_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PAIR.items():
        monkeypatch.setenv(f"COSYSERVE_{name.upper()}", value)


def test_every_device_has_a_worker() -> None:
    assert devices(Settings.read()) == [("auto", "")]
    assert devices(Settings.read(), "cpu", "cuda:1") == [("cpu", ""), ("cuda:1", "")]


def test_two_devices_for_one_model() -> None:
    assert devices(Settings.read(**PAIR)) == [("cuda:0", "cuda:1")]


@pytest.mark.usefixtures("pair_in_the_environment")
def test_devices_of_the_command_line_go_before_a_pair_of_the_environment() -> None:
    assert devices(Settings.read()) == [("cuda:0", "cuda:1")]
    assert devices(Settings.read(), "cpu") == [("cpu", "")]


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
    settings = Settings.read(model="test", dtype="bfloat16", profile="throughput")
    (options,) = worker_options(settings, ())
    assert (options.model, options.dtype, options.profile) == ("test", "bfloat16", "throughput")
    assert (options.slots, options.max_wait) == (3, 0.5)
    assert (options.waiting, options.voice_cache_bytes) == (64, 64 << 20)

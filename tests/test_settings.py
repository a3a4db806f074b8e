"""Settings: what is documented is what holds; nonsense is one clear error."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from cosyserve.cli.serve import serve
from cosyserve.errors import InputError
from cosyserve.settings import PREFIX, Settings, option_name, variable

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
ROW = re.compile(r"^\| `(COSYSERVE_\w+)` \|(.*?)\|(.*?)\|(.*?)\|$", re.MULTILINE)


class Row(NamedTuple):
    option: str
    default: str
    meaning: str


def documented() -> dict[str, Row]:
    rows = ROW.findall(PAGE.read_text("utf-8"))
    return {name: Row(*(cell.strip() for cell in cells)) for name, *cells in rows}


def test_every_setting_is_documented_with_its_default() -> None:
    page = documented()
    for name, field in Settings.model_fields.items():
        written = page.pop(variable(name)).default.strip("`")
        default = field.default
        if isinstance(default, Path):
            assert Path(written).expanduser() == default
        elif isinstance(default, int | float):
            assert float(written) == default
        elif isinstance(default, str):
            assert written == default
        else:
            assert written == default.get_secret_value()
    assert page == {}


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_page_says_what_the_setting_says(name: str) -> None:
    description = " ".join((Settings.model_fields[name].description or "").split())
    assert documented()[variable(name)].meaning == description
    assert re.match(r"(The|What) .*\.$", description)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_page_names_the_option_of_the_setting(name: str) -> None:
    option = "api_key" if name == "api_keys" else name
    is_option = option in inspect.signature(serve).parameters
    assert documented()[variable(name)].option == (f"`{option_name(option)}`" if is_option else "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"),
        ("SLOTS", "-1"),
        ("SLOTS", "999999999"),
        ("THREADS", "99999999"),
        ("PROFILE", "speed"),
        ("DTYPE", "int4"),
        ("DEVICE", "meta"),
        ("TOKEN2WAV_DEVICE", "cuda:0, mps"),
        ("MAX_REQUEST_SECONDS", "-1"),
        ("MAX_REQUEST_SECONDS", "inf"),
    ],
)
def test_nonsense_names_its_variable_or_its_option(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=f"^--{name.lower().replace('_', '-')}: ") as option:
        Settings.read(**{name.lower(): value})
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(InputError, match=f"^{PREFIX + name}: ") as environment:
        Settings.read(model="test")
    assert str(option.value).partition(": ")[2] == str(environment.value).partition(": ")[2]


def test_an_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYSERVE_PORT", "http")
    monkeypatch.setenv("COSYSERVE_HOST", "::1")
    settings = Settings.read(port=0, host=None, model="")
    assert (settings.port, settings.host) == (0, "::1")
    assert settings.options == {"port"}


def test_keys_are_read_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYSERVE_API_KEYS", " one, two ,,")
    settings = Settings.read()
    assert settings.keys == ["one", "two"]
    assert "one" not in repr(settings)


def test_where_voices_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYSERVE_HOME", "/somewhere")
    assert Settings.read().voices == "/somewhere/voices"
    monkeypatch.setenv("COSYSERVE_VOICE_STORE", "redis://host")
    assert Settings.read().voices == "redis://host"


@pytest.mark.parametrize("budget", ["", "0.5", ".25", "1", "12GiB", "1.5GiB"])
def test_budgets_of_gpu_memory(budget: str) -> None:
    assert Settings.read(gpu_memory=budget).gpu_memory == budget


@pytest.mark.parametrize("budget", ["0,5", "50%", "2", "-1GiB", "12 GB", "GiB", "0GiB", "0.0"])
def test_what_is_no_budget_is_refused(budget: str) -> None:
    with pytest.raises(InputError, match=r"a share of the GPU \(0.5\) or GiB \(12GiB\)"):
        Settings.read(gpu_memory=budget)

"""Settings: what is documented is what holds; nonsense is one clear error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cosyserve.errors import InputError
from cosyserve.settings import PREFIX, Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
ROW = re.compile(r"^\|(.*?`COSYSERVE_.*?)\|(.*?)\|", re.MULTILINE)


def documented() -> dict[str, str]:
    return {
        name: default.strip("` ")
        for names, default in ROW.findall(PAGE.read_text("utf-8"))
        for name in re.findall(r"`(\w+)`", names)
    }


def test_every_setting_is_documented_with_its_default() -> None:
    page = documented()
    for name, field in Settings.model_fields.items():
        said = page.pop(PREFIX + name.upper())
        default = field.default
        if isinstance(default, Path):
            assert Path(said).expanduser() == default
        elif isinstance(default, int | float):
            assert float(said) == default
        elif isinstance(default, str):
            assert said == default
        else:
            assert said == default.get_secret_value()
    assert page == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"),
        ("SLOTS", "-1"),
        ("PROFILE", "speed"),
        ("DTYPE", "int4"),
        ("MAX_REQUEST_SECONDS", "-1"),
    ],
)
def test_nonsense_names_its_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(InputError, match=PREFIX + name):
        Settings.read()


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

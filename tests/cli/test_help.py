"""The help of every verb: whole sentences, the settings' own words, their variables and choices."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from cosyserve.checkpoints.prepare import DTYPES, FORMS
from cosyserve.cli import app
from cosyserve.cli.prepare import Form, StoredDtype
from cosyserve.settings import Dtype, ProfileName, Settings, variable
from cosyserve.version import __version__

SENTENCE = re.compile(r"[A-Z].*[.'](\s+\\?\[env var: \w+\])?$")
# Options that are called like a setting and mean something else.
OTHERS = {
    ("bench live", "model"),
    ("bench load", "model"),
    ("prepare", "dtype"),
    ("prepare", "default_voice"),
    ("deploy engine llm", "dtype"),
    ("deploy engine flow", "model"),
    ("deploy engine flow", "dtype"),
    ("deploy plan", "model"),
    ("deploy run", "metrics_port"),  # a tritonserver's
    ("deploy start", "metrics_port"),
}


def parameters(command: Any, *verbs: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for parameter in command.params:
        yield verbs, parameter
    for name, verb in getattr(command, "commands", {}).items():
        yield from parameters(verb, *verbs, name)


def output(*words: str) -> str:
    command = [sys.executable, "-m", "cosyserve", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


ALL = [
    pytest.param(verbs, parameter, id=" ".join((*verbs, parameter.name)))
    for verbs, parameter in parameters(typer.main.get_command(app))
    if parameter.name != "help"
]


@pytest.mark.parametrize(("verbs", "parameter"), ALL)
def test_every_option_and_argument_is_a_sentence(verbs: tuple[str, ...], parameter: Any) -> None:
    assert SENTENCE.match(parameter.help)


@pytest.mark.parametrize(("verbs", "parameter"), ALL)
def test_an_option_of_a_setting_names_its_variable(verbs: tuple[str, ...], parameter: Any) -> None:
    name = "api_keys" if verbs == ("serve",) and parameter.name == "api_key" else parameter.name
    if name in Settings.model_fields and (" ".join(verbs), name) not in OTHERS:
        assert f"[env var: {variable(name)}]" in parameter.help


def test_choices_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = output("serve", "--help")
    assert "|".join(Dtype) in shown
    assert "|".join(ProfileName) in shown


def test_prepare_offers_what_can_be_prepared() -> None:
    assert tuple(StoredDtype) == DTYPES
    assert tuple(Form) == FORMS


def test_the_package_is_the_command() -> None:
    assert output("--version") == f"cosyserve {__version__}\n"

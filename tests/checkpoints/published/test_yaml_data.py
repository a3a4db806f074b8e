from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.checkpoints.published import yaml_data
from cosyserve.errors import CheckpointError


def parsed(tmp_path: Path, text: str) -> dict[str, object]:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    return yaml_data.read(file)


def test_tags_are_stripped_and_refs_followed(tmp_path: Path) -> None:
    text = """
seed: !apply:random.seed [1986]
rate: 24000
alias: !ref <rate>
part: !new:some.Class
    rate: !ref <alias>
    inner: !name:some.function
        small: 1e-06
other: !ref <part>
nothing: !ref <gone>
loop: !ref <loop>
"""
    data = parsed(tmp_path, text)
    assert data["seed"] == [1986]
    assert yaml_data.get(data, "part.rate") == 24000
    assert yaml_data.get(data, "part.inner.small") == 1e-6
    assert yaml_data.get(data, "other.inner.small") == 1e-6
    for missing in ("nothing", "part.gone", "rate.gone", "loop.gone", "x.y.z"):
        assert yaml_data.get(data, missing) is None
    assert isinstance(yaml_data.get(data, "loop"), str)


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch CANARY']",
        "a: !!python/object/apply:os.system ['touch CANARY']",
        "a: !!python/name:os.system",
        "- a list",
        "",
        "just text",
        "a: [1",
        "\tb: 1",
        "? [1]\n: 2",
        "a: !!timestamp x",
        "a: !!int ''",
        "a: !!bool x",
        "a: 2001-99-99",
        "a: " + "1:" * 20_000 + "1.5",
        "a: " + "9" * 20_000,
        "[" * 20_000,
        "a:\n" + "".join(" " * i + "a:\n" for i in range(1, 300)) * 2,
        "a: *b",
        "a: \x00",
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 60)),
        "x: " + "y" * yaml_data.MAX_BYTES,
    ],
)
def test_hostile_yaml_is_one_error(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"a\.yaml: "):
        parsed(tmp_path, text)
    assert os.listdir(tmp_path) == ["a.yaml"]


def test_aliases_share_what_they_name(tmp_path: Path) -> None:
    bomb = "a0: &a0 [1, 2]\n" + "".join(
        f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 90)
    )
    assert len(parsed(tmp_path, bomb)) == 90
    assert parsed(tmp_path, "a: &a [*a]")


@given(st.binary(max_size=60) | st.text("ab:-[]{}!&*?|>'\"#%@`, \n<1.e", max_size=60))
def test_any_bytes_are_data_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, text: bytes | str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with contextlib.suppress(CheckpointError):
        assert isinstance(yaml_data.read(file), dict)

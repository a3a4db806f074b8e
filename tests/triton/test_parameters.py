from __future__ import annotations

import pytest

from cosyserve.errors import InputError
from cosyserve.triton.models.instance.parameters import ModelParameters


def test_one_that_another_version_did_not_render_says_what_to_do() -> None:
    read = ModelParameters.of(
        {"name": "vocoder", "parameters": {"device": {"string_value": "cpu"}}}
    )
    assert read["device"] == "cpu"
    with pytest.raises(InputError, match=r"no parameter 'dtype'.*render it anew"):
        read["dtype"]

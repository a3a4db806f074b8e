from __future__ import annotations

import torch

from cosyserve.checkpoints import testmodel
from cosyserve.checkpoints.model import assemble
from cosyserve.checkpoints.parts import MODULES, check_finite


def test_it_is_always_the_same_and_whole() -> None:
    first, second = testmodel.random_parts(), testmodel.random_parts()
    assert first.states.keys() == MODULES.keys()
    for name, state in first.states.items():
        check_finite(name, state)
        for key, value in state.items():
            assert torch.equal(value, second.states[name][key])


def test_it_runs_and_says_that_it_does_not_speak() -> None:
    model = assemble(testmodel.random_parts())
    assert not model.config.speech
    lm, tokenizer = model.need_lm()
    ids = torch.tensor([[lm.config.sos, *tokenizer.encode("hello"), lm.config.task]])
    assert lm.logits(lm(ids)).isfinite().all()
    assert lm.config.eos in lm.logits(lm(ids))[0, -1].topk(40).indices
    model.need_token2wav()
    model.need_prompt_encoders()

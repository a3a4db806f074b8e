from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cosyserve.models.config import LMConfig
from cosyserve.models.lm.bistream import Bistream

CONFIG = LMConfig(text_vocab=1000, speech_tokens=500)


def run(groups: list[list[int]], prompt_text: int, prompt_speech: int) -> list[list[int]]:
    """All LM inputs when text arrives in these groups and the LM counts up, then ends."""
    stream = Bistream(CONFIG, range(prompt_text), range(prompt_speech))
    fed, arriving, tail = [], iter(groups), 0
    while not stream.finished:
        ids = stream.feed()
        if ids is None:
            group = next(arriving, None)
            stream.end() if group is None else stream.push(group)
            continue
        fed.append(list(ids))
        token = stream.forced
        if token is None:
            last = CONFIG.fill in stream.forbidden
            tail += last
            token = CONFIG.eos if tail > 3 else len(stream.generated)
        stream.take(token)
    return fed


@given(st.integers(1, 60), st.integers(0, 12), st.integers(0, 40), st.data())
def test_how_the_text_arrives_makes_no_difference(
    length: int, prompt_text: int, prompt_speech: int, data: st.DataObject
) -> None:
    text = list(range(100, 100 + length))
    cuts = sorted(data.draw(st.sets(st.integers(1, length), max_size=6)))
    groups = [text[a:b] for a, b in zip([0, *cuts], [*cuts, length], strict=True)]
    whole = run([text], prompt_text, prompt_speech)
    assert run(groups, prompt_text, prompt_speech) == whole
    assert run([[t] for t in text], prompt_text, prompt_speech) == whole
    fed = [i for ids in whole for i in ids if 100 <= i < 1000]
    assert fed == text  # every text id, once, in order


def test_only_sensible_ids_may_be_drawn() -> None:
    stream = Bistream(CONFIG, [], [])
    stream.push(range(5))
    assert stream.feed() == [CONFIG.sos, *range(5)]
    assert set(stream.forbidden) == {CONFIG.eos, CONFIG.eos + 1}
    stream.take(CONFIG.fill)
    assert stream.feed() is None
    stream.end()
    assert stream.feed()[-1] == CONFIG.task
    assert set(stream.forbidden) == {CONFIG.eos + 1, CONFIG.fill}
    stream.take(CONFIG.eos)
    assert stream.finished
    assert stream.feed() is None

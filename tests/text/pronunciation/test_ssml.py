from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.errors import InputError
from cosyserve.text import segments
from cosyserve.text.pronunciation.lexicon import Lexicon
from cosyserve.text.pronunciation.ssml import SsmlPart, is_ssml, may_become_ssml, read_ssml


def parts(inner: str) -> list[SsmlPart]:
    return read_ssml(f"<speak>{inner}</speak>").parts


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("Hello.", [SsmlPart("Hello.")]),
        ("One<break/>two", [SsmlPart("One", pause=0.5), SsmlPart("two")]),
        ("One<break time='300ms'/> two", [SsmlPart("One", pause=0.3), SsmlPart("two")]),
        ("One<break strength='x-strong' time='1.5s'/>", [SsmlPart("One", pause=1.5)]),
        ("<break strength='weak'/>One", [SsmlPart("", pause=0.25), SsmlPart("One")]),
        ("One<break/>...<break/>", [SsmlPart("One", pause=1.0)]),
        ("One<break time='0s'/>two", [SsmlPart("One", pause=0.0), SsmlPart("two")]),
        ("One<break strength='none'/>", [SsmlPart("One", pause=0.0)]),
        ("One<break/><break strength='none'/>", [SsmlPart("One", pause=0.5)]),
        ("A <prosody rate='80%'>b</prosody> c", [SsmlPart("A"), SsmlPart("b", 0.8), SsmlPart("c")]),
        ("<prosody rate='fast'>b<prosody rate='+20%'>c</prosody></prosody>",
         [SsmlPart("b", 1.25), SsmlPart("c", 1.5)]),
        ("<prosody rate='80%'>b</prosody>. C", [SsmlPart("b.", 0.8), SsmlPart("C")]),
        ("“<prosody rate='80%'>b</prosody>,” c", [SsmlPart("b,”", 0.8), SsmlPart("c")]),
        ("<prosody rate='80%'>b</prosody>!", [SsmlPart("b!", 0.8)]),
        ("<prosody rate='80%'>b</prosody>.<break/>c", [SsmlPart("b.", 0.8, 0.5), SsmlPart("c")]),
        ("<prosody rate='80%'>b</prosody> .5", [SsmlPart("b", 0.8), SsmlPart(".5")]),
        ("<prosody rate='80%'>好</prosody>，走", [SsmlPart("好，", 0.8), SsmlPart("走")]),
        ("a<break/>, b", [SsmlPart("a", pause=0.5), SsmlPart(", b")]),
        ("the <sub alias='World Wide Web'>WWW</sub>.", [SsmlPart("the World Wide Web.")]),
        ("<say-as interpret-as='characters'>usb 2</say-as>", [SsmlPart("U S B 2")]),
        ("<say-as interpret-as='telephone'>555-12</say-as>", [SsmlPart("5 5 5 1 2")]),
        ("<say-as interpret-as='cardinal'>1999</say-as> men",
         [SsmlPart("one thousand, nine hundred and ninety-nine men")]),
        ("<say-as interpret-as='ordinal'>21</say-as>", [SsmlPart("twenty first")]),
        ("有<say-as interpret-as='cardinal'>123</say-as>人", [SsmlPart("有一百二十三人")]),
        ("<say-as interpret-as='ordinal'>2</say-as>名", [SsmlPart("第二名")]),
        ("Tom &amp; Jerry\n run", [SsmlPart("Tom & Jerry run")]),
    ],
)  # fmt: skip
def test_speech_in_parts(inner: str, expected: list[SsmlPart]) -> None:
    assert parts(inner) == expected


def test_words_by_their_sounds_are_entries_of_a_lexicon() -> None:
    document = read_ssml(
        '<speak version="1.1" xmlns="http://www.w3.org/2001/10/synthesis" xml:lang="en-US">'
        'A <phoneme alphabet="ipa" ph="təˈmɑːtəʊ">tomato</phoneme>, a tomato, '
        '<phoneme alphabet="x-arpabet" ph="HH AH0 L OW1">tomato</phoneme></speak>'
    )
    (part,) = document.parts
    spoken = segments(part.text, len, lexicon=Lexicon(document.lexicon, ("ARPAbet",)))
    assert list(spoken) == ["A [T][AH0][M][AA1][T][OW0], a tomato, [HH][AH0][L][OW1]."]
    with pytest.raises(InputError, match="'tomato' is given in ARPAbet, and this model reads no"):
        Lexicon(document.lexicon)
    chinese = read_ssml('<speak>典<phoneme alphabet="py" ph="dang4">当</phoneme></speak>')
    assert Lexicon(chinese.lexicon, ("pinyin",))(chinese.parts[0].text) == "典[d][àng]"


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ("<voice name='x'>a</voice>", "no <voice> here: use <speak>, <break>"),
        ("<audio src='x'/>", "no <audio>"),
        ("<speak>a</speak>", "no other <speak>"),
        ("<prosody pitch='high'>a</prosody>", "<prosody> has no 'pitch': it has rate"),
        ("<prosody>a</prosody>", "needs rate"),
        ("<prosody rate='quick'>a</prosody>", "rate of <prosody>"),
        ("<prosody rate='-100%'>a</prosody>", "rate of <prosody>"),
        ("<break time='99s'/>a", "10s at most"),
        ("<break time='1'/>a", "'300ms' or"),
        ("<break strength='big'/>a", "strength is one of"),
        ("<break>a</break>", "holds no text"),
        ("a" + "<break time='10s'/>" * 7, "longer than 60 s"),
        ("<sub>a</sub>", "<sub> needs alias"),
        ("<sub alias='a'><break/></sub>", "<sub> holds no <break>"),
        ("<phoneme ph='qq'>a</phoneme>", "'q' in IPA"),
        ("<phoneme alphabet='sampa' ph='a'>a</phoneme>", "no alphabet 'sampa'"),
        ("<say-as interpret-as='date'>1</say-as>", "no interpret-as 'date'"),
        ("<say-as interpret-as='ordinal'>x</say-as>", "no whole number"),
        ("<say-as interpret-as='digits'>x</say-as>", "no digits"),
        ("a & b", "line 1, column 11"),
        ("a < b", "&lt;"),
        ("\ud800", "surrogate"),
    ],
)
def test_what_can_not_be_read_is_refused(inner: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("|", r"\|")):
        parts(inner)


def test_entities_do_not_grow() -> None:
    bomb = '<!DOCTYPE speak [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><speak>&b;</speak>'
    with pytest.raises(InputError, match="document type"):
        read_ssml(bomb)


@given(st.text(st.sampled_from("<>/&=' \"abc天3speakbrprosody;"), max_size=40))
def test_anything_else_is_an_error_of_the_client(inner: str) -> None:
    with suppress(InputError):
        parts(inner)


def test_a_document_is_known_by_its_start() -> None:
    assert is_ssml(" <speak>a</speak>")
    assert not is_ssml("Say <speak>")
    assert may_become_ssml("<spe")
    assert may_become_ssml("")
    assert not may_become_ssml("<b")
    assert not may_become_ssml("<speak>")

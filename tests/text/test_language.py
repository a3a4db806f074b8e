import pytest

from cosyserve.text.language import Language, detect


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("你好 world", Language.CHINESE),
        ("鲜の每日新品上市真的很好喝啊", Language.CHINESE),
        ("東京は3月です", Language.JAPANESE),
        ("カタカナ", Language.JAPANESE),
        ("안녕하세요 世界", Language.OTHER),
        ("Hello, 3 worlds!", Language.ENGLISH),
        ("Ich habe 3 Äpfel", Language.OTHER),
        ("Привет", Language.OTHER),
        ("I have 2 [j][ǐ].", Language.ENGLISH),
        ("I have 2 [j][ǐ", Language.ENGLISH),  # it arrives letter by letter
        ("He is [j][ǐ] für 2", Language.OTHER),
        ("42", Language.ENGLISH),
        ("", Language.ENGLISH),
    ],
)
def test_detects_scripts(text: str, language: Language) -> None:
    assert detect(text) is language


def test_the_original_knew_two_languages() -> None:
    assert detect("東京は3月です", frozenset()) is Language.CHINESE
    assert detect("Привет", frozenset()) is Language.ENGLISH

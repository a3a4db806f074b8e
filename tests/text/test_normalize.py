import pytest
from hypothesis import example, given, settings

from cosyserve.text import normalize, spoken_text
from cosyserve.text.language import detect
from cosyserve.text.normalize import spoken_blocks
from tests.text.arriving.test_gate import TEXT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("今天是2024年5月12日", "今天是二零二四年五月十二日"),
        ("这本书￥39.80元", "这本书三十九点八零元"),
        ("¥1,250.50的书", "一千两百五十点五零元的书"),
        ("请访问 www.example.com 了解.好", "请访问www.example.com了解。好"),
        ("v1.2.3版本", "v一点二点三版本"),
        ("U.S.A.有3个", "U.S.A.有三个"),
        ("等等...好", "等等…好"),
        ("Hello\nworld  wide 你好", "Hello world wide你好"),
        ('他说"3个"好', '他说"三个"好'),
        ("A - B（旁白）——好，", "A，B旁白 好。"),
        ("[vocalized-noise]第3次", "[vocalized-noise]第三次"),
        ("Wi-Fi 6和GPT-4，房号202", "Wi-Fi六和GPT-四，房号二零二"),
        ("￥200万，100,000元", "两百万元，十万元"),
        ("第3-5章占10-20%", "第三到五章占百分之十到百分之二十"),
    ],
)
def test_chinese(text: str, expected: str) -> None:
    assert spoken_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't you think it's 50% off?", "Don't you think it's fifty percent off?"),
        ('He said "3 cats." Yes. No. Maybe.', 'He said "three cats." Yes. No. Maybe.'),
        (
            "It cost $1,250.50.",
            "It cost one thousand two hundred and fifty dollars and fifty cents.",
        ),
        ("1,250 pages", "one thousand two hundred and fifty pages"),
        ("Version 2.0.1", "Version two point oh point one"),
        ("[quick_breath] 3 <strong>5</strong>", "[quick_breath] three <strong>five</strong>"),
        ("😀3 and #1", "three and number one"),
        ("at 10:30 p.m. with 3", "at ten thirty PM with three"),
        ("Jan. 5, 2023, we met", "January fifth twenty twenty three, we met"),
        ("in 3-5 days, 10x faster", "in three to five days, ten times faster"),
        ("100 m in 1 h, 5 km/h", "one hundred meters in one hour, five kilometers per hour"),
        ("3 m² and 5kg.", "three square meters and five kilograms."),
        ("No. 5, the 1990s, 24/7", "number five, the nineteen nineties, twenty-four seven"),
        ("call (555) 555-1234", "call five five five, five five five, one two three four"),
        ("call 555-1234", "call five five five, one two three four"),
        ("GPT-4 and covid-19", "GPT-four and covid-nineteen"),
        ("a 3-year-old 2-in-1", "a three-year-old two-in-one"),
        ("10-20% of ￥200", "ten percent to twenty percent of two hundred yuan"),
        ("note [ID1], [EH1] 2", "note [ID one], [EH1] two"),
        ("  Hello  ", "Hello"),
    ],
)
def test_english(text: str, expected: str) -> None:
    assert spoken_text(text) == expected


@pytest.mark.parametrize(
    "text", ["東京は3月5日です. 3.5円", "Цена 3.50 руб.", "Ich habe 3 Äpfel.", "안녕 3.5"]
)
def test_other_languages_stay_as_written(text: str) -> None:
    assert spoken_text(text) == text


def test_marked_up_text_is_untouched() -> None:
    assert spoken_text("说3句<|endofprompt|>39.80 元") == "说3句<|endofprompt|>39.80 元"
    assert spoken_text("") == ""


@pytest.mark.parametrize(
    ("text", "original"),
    [
        ("￥39.80元.", "三元九点八零元。"),
        ("Wi-Fi 6路由", "Wi减Fi六路由"),
        ("Don't miss 50% off?", "Don ' t miss fifty percent off ? "),
        ("12345", "twelve thousand three hundred and forty five "),
        ("GPT-4", "GPT negative four "),
    ],
)
def test_without_fixes_it_is_the_original(text: str, original: str) -> None:
    assert spoken_text(text, fixes=frozenset()) == original


@settings(deadline=None, max_examples=150)
@given(TEXT)
@example("好" + "，（，" * 3)
@example("好U. . S.A. - —— 3.5 2")
@example("[EH1] 5٣ [AH0] 5 km")
def test_a_text_is_spoken_alike_in_any_blocks(text: str) -> None:
    language = detect(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalize, "_BLOCK", 1)
        blocks = list(spoken_blocks(text, language))
        patch.setattr(normalize, "_BLOCK", 10_000)
        (whole,) = spoken_blocks(text, language)
    assert "".join(blocks) == whole

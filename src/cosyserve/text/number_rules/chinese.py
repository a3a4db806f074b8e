"""Numbers in a clause of Chinese: amounts with their units, years, dates, times, digit strings.

A clause is read whole or not at all: the grammar weighs all of its readings against each other.
"""

from __future__ import annotations

import re

from cosyserve.text.tokens.special import HIDDEN_NARROW, HIDDEN_WIDE

Match = re.Match[str]

_DIGITS = "零一二三四五六七八九"
_POWERS = ["", "十", "百", "千"]
LONGEST_VALUE = 8  # digits that have a value; longer strings are digits
_COUNTED = (
    "万丈世丘丝两个丸人亿代令件伏位余元兆克具冬几刀分刻勺匹千升单卮厘双叠口只号合名吨周啖回场块坡堂"
    "堆墙壳壶夏多夜天头套字季客家寸对寻封尺尾层山岁岭帧常幢度座张忽户手扎把担挑捆撮支斗斛斤日旬时春"
    "曲更月本条杯板枝架根档桶棵段毫江泡溪炮煲片瓶百盆盏盒盘石砣碗碟票秋秒程窠笼管箩箱篇篮簋米粒纪线"
    "罐网罗群脚腔艘袋袭课贯贴趟跳身辆辈道里针钟钧钱钵铢铺锅锱阙队阵集面页顶颗首"
)
_NAMED_UNITS = {"°": "度", "℃": "摄氏度", "℉": "华氏度"}
_LETTER_UNITS = {
    "km": "公里", "cm": "厘米", "mm": "毫米", "m": "米", "kg": "千克", "mg": "毫克", "ml": "毫升",
    "h": "小时", "min": "分钟", "s": "秒",
}  # fmt: skip
_CURRENCIES = {"￥": "元", "¥": "元", "$": "美元", "€": "欧元", "£": "英镑"}
_UNIT = (
    rf"[{_COUNTED}]|公里|小时|平方|微米|摄氏度|立方|纳米|年(?:之?[前后]|内|来)"
    rf"|°(?![CcFf])|[℃℉]|(?:{'|'.join(_LETTER_UNITS)})(?![A-Za-z²³])"
)
# A team's name may end before a score, or begin after it: there only these are known to be none.
_NO_TEAM_BEFORE = r"(?<![^午晨晚早夜在于至从号天间要有为共需是每了的第过近超等用，、：（(])"
_NO_TEAM_AFTER = r"(?![^至要有为是了过等起前左右止结举行出发播，、）)])"
_CLOCK = rf"{_NO_TEAM_BEFORE}(?P<hour>\d\d?):(?P<minute>[0-5]\d){_NO_TEAM_AFTER}"
_DATE = (
    rf"{_NO_TEAM_BEFORE}(?P<year>[12]\d{{3}})(?P<mark>[-/])(?P<month>\d\d)(?P=mark)(?P<day>\d\d)"
    rf"{_NO_TEAM_AFTER}"
)
_AMOUNT = (
    rf"(?:{_NO_TEAM_BEFORE}(?P<start>\d+)[-~])?"
    r"(?P<currency>[￥¥$€£])?(?P<integer>\d+)(?:\.(?P<fraction>\d+))?"
    rf"(?:(?P<percent>%)|(?P<blank> ?)(?P<unit>{_UNIT})|(?P<calendar>年))?"
)
_NUMBER = re.compile(rf"{_CLOCK}|{_DATE}|{_AMOUNT}", re.ASCII)
_WORD_BEFORE = re.compile(r"([A-Za-z]+) ?$")
# No unit, currency or operator is made of these, whatever stands beside them.
_PLAIN = re.compile(
    rf"[\u4e00-\u9fff\u2010A-Za-z{HIDDEN_NARROW}{HIDDEN_WIDE} ，、：“”‘’（）《》【】…()!?;\"']*"
)
_AFTER = re.compile(rf"(?! ?[a-zABOP°º²³ωμ]| ?(?:{_UNIT})|[到年后赛.,:：/~％\d])")
_AFTER_UNIT = re.compile(r"(?!到)")


def read_chinese(clause: str) -> str | None:
    """The clause with its numbers in words; None for the grammar to read it."""
    words, at = list[str](), 0
    for number in _NUMBER.finditer(clause):
        before = clause[at : number.start()]
        spoken = _spoken(number, before)
        if spoken is None or not _PLAIN.fullmatch(before):
            return None
        words += before, spoken
        at = number.end()
    rest = clause[at:]
    return "".join([*words, rest]) if _PLAIN.fullmatch(rest) else None


def spell_chinese(text: str) -> str:
    """The text with its digits one by one."""
    return re.sub(r"\d", lambda digit: _each(digit[0]), text)


def _spoken(number: Match, before: str) -> str | None:
    word = _WORD_BEFORE.search(before)
    if before.endswith(("尾号", "尾号是", "尾号为")) or (word and _is_code(word[1])):
        return None
    if number["hour"]:
        return _time(number["hour"], number["minute"])
    if number["year"]:
        return _date(number["year"], number["month"], number["day"])
    valued = before.endswith(("约", "人均"))
    return _range(number) if number["start"] else _amount(number, valued)


def _is_code(word: str) -> bool:
    """Whether a word before a number may be a currency's."""
    return word.isupper() and (len(word) > 2 or word[-1] in "BOPY")


def _range(number: Match) -> str | None:
    """3-5天 -> 三到五天"""
    start, unit = number["start"], number["unit"]
    end = _amount(number, valued=False)
    if end is None or number["currency"]:
        return None
    if number["calendar"]:
        return f"{_each(start)}到{end}" if len(start) == len(number["integer"]) == 4 else None
    if not unit or start[0] == "0" or len(start) > LONGEST_VALUE:
        return None
    return f"{_counting(start, unit)}到{end}"


def _counting(digits: str, unit: str) -> str:
    return "两" if digits == "2" and unit not in "两号月" else chinese_value(digits)


def _amount(number: Match, valued: bool) -> str | None:
    integer, fraction, unit = number["integer"], number["fraction"], number["unit"]
    beside = unit or number["calendar"]
    if not (_AFTER_UNIT if beside else _AFTER).match(number.string, number.end()):
        return None
    if number["calendar"]:
        return None if valued else _in_year(number)
    if not (unit or valued or number["currency"] or number["percent"]) and not fraction:
        return _bare(integer)
    if len(integer) > LONGEST_VALUE or (integer[0] == "0" and integer != "0"):
        return None
    value = chinese_value(integer)
    if fraction:
        value += f"点{_each(fraction)}"
    if number["percent"]:
        return None if number["currency"] else f"百分之{value}"
    if number["currency"]:
        return None if unit else value + _CURRENCIES[number["currency"]]
    if unit:
        value = value if fraction else _counting(integer, unit)
        return value + (_NAMED_UNITS.get(unit) or _LETTER_UNITS.get(unit) or unit)
    if fraction and not valued and _may_be_date(integer, fraction):
        return None
    return value


def _may_be_date(integer: str, fraction: str) -> bool:
    """12.25 is the day, 2024.05 the month; what is longer may end in one."""
    if len(integer) == 4:
        return len(fraction) > 1
    return len(integer) > 4 or (len(integer) == 2 and integer < "13")


def _in_year(number: Match) -> str | None:
    digits = number["integer"]
    if number["currency"] or number["fraction"] or len(digits) > 4:
        return None
    return f"{_each(digits)}年"


def _bare(digits: str) -> str | None:
    """A number that counts nothing: some lengths are codes, as in 房号202."""
    if len(digits) in (1, 2, 4, 7):
        return None if digits[0] == "0" and digits != "0" else chinese_value(digits)
    return _each(digits).replace("一", "幺")


def _time(hour: str, minute: str) -> str | None:
    if not 1 <= int(hour) <= 24:
        return None
    words = "两点" if int(hour) == 2 else f"{chinese_value(hour.lstrip('0'))}点"
    if minute == "00":
        return words
    tens = "零" if minute[0] == "0" else ""
    return f"{words}{tens}{chinese_value(minute.lstrip('0'))}分"


def _date(year: str, month: str, day: str) -> str | None:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    return f"{_each(year)}年{chinese_value(month.lstrip('0'))}月{chinese_value(day.lstrip('0'))}日"


def _each(digits: str) -> str:
    return "".join(_DIGITS[int(digit)] for digit in digits)


def chinese_value(digits: str) -> str:
    """12345 -> 一万两千三百四十五"""
    if len(digits) > 4:
        high, low = digits[:-4], digits[-4:]
        words = f"{_below_myriad(high)}万".replace("二万", "两万")
        return words + (_below_myriad(low) if int(low) else "")
    return _below_myriad(digits)


def _below_myriad(digits: str) -> str:
    words = ""
    for at, digit in enumerate(digits):
        power = len(digits) - 1 - at
        if digit == "0":
            if int(digits[at:]) and not words.endswith("零"):
                words += "零"
            continue
        name = "两" if digit == "2" and power > 1 else _DIGITS[int(digit)]
        words += name + _POWERS[power]
    if len(digits) == 2 and digits[0] == "1":
        return words[1:]
    return words or "零"

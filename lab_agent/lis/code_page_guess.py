"""Guesses the code page of a message or file that names none: in which one its bytes are words.

Each page is weighed by its languages: how often they have a letter, whether letters stand where they do in words, and capitals
at their beginning. The same bytes are words in one page and noise in most others; where two are left, a person must say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2

_RUSSIAN = "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъёіїєґ"
_PER_MILLE = (
    *(109, 85, 80, 74, 67, 63, 55, 47, 45, 44, 35, 32, 30, 28, 26, 20, 19, 17, 17),
    *(16, 16, 14, 12, 10, 9, 7, 6, 5, 4, 3, 3, 2, 3, 4, 2, 2, 1),
)
_WESTERN = "äöüßéèêëàâáåæçñóòôõøíìîïúùûãœš"
_CENTRAL = "ąćęłńóśźżáčďéěíňřšťúůýžäöüßôĺľŕőűăâîşţđ"
_TURKISH = "çğıöşüâîû"
_CHINESE = (
    "的一是不了人在有我他这中大来上国和地到以说时要就出会可也你对生能子那得于着下自之年过发后作里用道行所然家种事成方多经么去法学如都同现当没动"
    "面起看定天分还进好小部其些主样理心她本前开但因只从想实日者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应"
    "医院科室床号姓名男女岁龄标型类血尿便液清常规检验测试项目结果参考值范围单位白红细胞板蛋糖酸酶肝肾功胆固醇钾钠氯钙铁素阴阳异偏低计数比率绝浓度"
    "总直接百万升克毫微王李张刘陈杨黄赵吴周徐孙马朱胡林郭何罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘蒋蔡余杜叶程苏魏吕丁任沈姚卢"
)
"""Characters of every page of Chinese, of laboratory reports, and of the commonest names."""
_SIGNS = frozenset("–—’‘“”„…•€°µ±²³½¼¾×·§«»№®©™†‰\xa0")
_SIGNS_IN_WORDS = frozenset("’–—·\xa0")
_LETTER, _COMMON, _RARE, _WRONG_CASE, _WRONG, _CONTROL = 3.0, 4.0, -0.5, -3.0, -6.0, -12.0
"""Bits: how much likelier a character is in words of a page than by chance, as a logarithm."""
_LEAD, _WORDS, _ALPHABET = 8.0, 0.3, 5.5
"""What makes a page certain: the bits by which it leads, its bits a character, and those of words in an alphabet of its own."""
_MOST_BYTES = 200_000
_LATIN_PAGES = frozenset({"cp1252", "cp1250", "iso8859-2", "cp1254"})


@dataclass(frozen=True, slots=True)
class CodePageGuess:
    """The pages in which bytes may be words, the likeliest first; `is_certain`: the first one is theirs."""

    pages: tuple[str, ...]
    is_certain: bool

    @property
    def page(self) -> str | None:
        """The page if it is certain."""
        return self.pages[0] if self.is_certain else None

    @property
    def reason(self) -> str:
        """Why it is proposed, or what to ask."""
        if self.is_certain:
            return f"read as {self.pages[0]}, the texts are words"
        may_be = (
            f"the bytes may be {' or '.join(self.pages)}" if self.pages else "the bytes are in no code page that is known here"
        )
        return f"{may_be}: ask the laboratory in which one its system writes"


def guess_code_pages(data: bytes) -> CodePageGuess:
    """Guess the page. One that reads all of it like an earlier one of other languages is left out; signs alone are no words."""
    found: dict[str, list[float]] = {}
    readings: dict[str, Mapping[str, float]] = {}
    for page, letters in _pages().items():
        try:
            text = data[:_MOST_BYTES].decode(page)
        except UnicodeDecodeError:
            continue
        bits = list(_bits(text, letters, page))
        if not any(bits) or (sum(bits) > 0 and readings.setdefault(text, letters) is letters):
            found[page] = bits
    ranked = sorted(found, key=lambda page: -sum(found[page]))
    best = sum(found[ranked[0]]) if ranked else 0.0
    near = tuple(page for page in ranked if sum(found[page]) > best - _LEAD)
    return CodePageGuess(near, len(near) == 1 and _are_words(near[0], found[near[0]]))


def _are_words(page: str, bits: Sequence[float]) -> bool:
    return sum(bits) >= max(_WORDS * len(bits), _LETTER if page in _LATIN_PAGES else _ALPHABET)


def _pages() -> Mapping[str, Mapping[str, float]]:
    """The pages that are proposed, with the bits of their letters; of those that read a text alike the first one is named."""
    western, central, turkish = (dict.fromkeys(letters, _LETTER) for letters in (_WESTERN, _CENTRAL, _TURKISH))
    cyrillic = {letter: log2(often * 32 / 1000) for letter, often in zip(_RUSSIAN, _PER_MILLE, strict=True)}
    level_one = bytes(byte for lead in range(0xB0, 0xD8) for trail in range(0xA1, 0xFF) for byte in (lead, trail))
    chinese = dict.fromkeys(level_one.decode("gb2312", "ignore"), _RARE) | dict.fromkeys(_CHINESE, _COMMON)
    return {
        "cp1252": western,
        "cp1250": central,
        "iso8859-2": central,
        "cp1254": turkish,
        **dict.fromkeys(("cp1251", "koi8-r", "cp866", "iso8859-5"), cyrillic),
        "gb18030": chinese | dict.fromkeys("（），：。、％；～－", 0.0),
    }


def _bits(text: str, letters: Mapping[str, float], page: str) -> Iterator[float]:
    padded = f" {text} "
    for place, char in enumerate(text):
        if not char.isascii():
            before, behind = padded[place], padded[place + 2]
            known = letters.get(char.lower())
            if known is None:
                is_sign = char in _SIGNS and (char in _SIGNS_IN_WORDS or not (before.isalpha() and behind.isalpha()))
                yield 0.0 if is_sign else _CONTROL if "\x80" <= char < "\xa0" else _WRONG
            else:
                yield known + _place_bits(char, before, behind, page)


def _place_bits(char: str, before: str, behind: str, page: str) -> float:
    """What the letters beside a letter say: accents stand among plain letters, and no other alphabet does."""
    wrong = _WRONG_CASE if char.isupper() and before.islower() else 0.0
    plain = [each.isascii() for each in (before, behind) if each.isalpha()]
    if page in _LATIN_PAGES:
        return wrong + (0.0 if any(plain) else _WRONG if plain else -_LETTER)
    return wrong + (_WRONG if any(plain) and page != "gb18030" else 0.0)

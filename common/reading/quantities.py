"""Rules of reader.py for money, and for telephone numbers, codes and other groups of digits."""

from __future__ import annotations

import re

from common.reading.initials import initials, letters
from common.reading.numbers import cardinal, decimal, digits, groups_of_digits, number_or_year, two_digits
from common.reading.patterns import AFTER_ARTICLE, BEFORE_NOUN, DASH, NUMBER, Rule, any_of, behind
from common.reading.tables import CODES, MANY, SIGNED, UNITS, WORDS_AND_UNITS

# --- digits in groups ---


def _seven_digits(prefix: str, line: str) -> str:
    """Local telephone number, "555-1234", or a range of round numbers, "500-1000"."""
    if prefix[-1] == "0" and line[-1] == "0" and line[0] != "0":
        return f"{cardinal(prefix)} to {number_or_year(line)}"
    return groups_of_digits(f"{prefix}-{line}")


def _number_with_dashes(number: str) -> str:
    """Number with dashes: "978-0-306-40615-7" digit by digit, "90-60-90" and the record "10-3-1" as numbers."""
    groups = number.replace("–", "-").split("-")
    are_numbers = all(len(group) < 3 and group[0] != "0" for group in groups) and any(
        len(group) == 2 for group in groups
    )
    return ", ".join(map(cardinal, groups)) if are_numbers else groups_of_digits(number)


def _number_with_points(number: str) -> str:
    """Version such as "1.2.3", or with four parts an IP address."""
    parts = number.split(".")
    return " dot ".join(map(digits, parts)) if len(parts) == 4 else " point ".join(map(cardinal, parts))


def _video_format(number: str, letter: str) -> str:
    """Video format: 720p as seven twenty P, 1080i as ten eighty I."""
    return f"{cardinal(number[:-2])} {two_digits(number[-2:])} {letter.upper()}"


# --- codes: digit by digit ---

# What is always a code, and what is one with four digits or more.
_SECRETS = (
    r"OTP|PIN|PINs?\scode|[Pp]asscode|[Pp]assword|CVV|CVC|(?:(?:[Vv]erification|[Ss]ecurity|[Aa]ccess|[Cc]onfirmation|[Aa]ctivation"
    r"|[Pp]romo|[Aa]rea|[Zz]ip|ZIP|[Pp]ostal|[Ee]rror|[Pp]ass|[Ll]ogin)\s)?[Cc]ode|[Ee]rror|[Ee]xtension|[Zz]ip|ZIP"
)
_NUMBERED = (
    r"[Oo]rder|[Ii]nvoice|[Tt]icket|[Cc]ase|[Bb]ooking|[Rr]eservation|[Rr]eference|[Rr]ef|[Cc]onfirmation|[Tt]racking|[Aa]ccount|[Aa]cct"
    r"|[Cc]ustomer|[Mm]ember|[Ss]erial|[Pp]olicy|[Cc]laim|[Rr]eceipt|[Tt]ransaction|[Pp]urchase|[Ii]tem|[Mm]odel|[Pp]art|ID|[Uu]ser|SKU|PO"
    r"|[Rr]outing|[Pp]assport|[Ll]icense|[Pp]arcel|[Ss]hipment|[Pp]hone"
)
_NUMBER_SIGN = (
    r"(?:\s?\#\s?|\s(?:number|Number|no\.|No\.|ID|id|code)(?:\sis)?[:\s]\s?\#?|\s(?:is|was)[:\s]\s?\#?|:\s?\#?)"
)
_NOT_COUNTED = r"(?![0-9]|[.,:/][0-9]|[%°]|\s(?:of|[a-z]{3,}s)\b)"  # order 5000 units
_CODE = rf"([A-Z]{{0,3}}-?)([0-9]{{3,12}}){_NOT_COUNTED}"
_NOT_A_YEAR = r"(?!(?:1[5-9]|20)[0-9]{2}\b)"


def _code(words: str, letters: str, number: str) -> str:
    """Code digit by digit; 404 too, but 200 is two hundred, and order 5000 five thousand."""
    is_round = number[0] != "0" and ((len(number) == 3 and number.endswith("00")) or number.endswith("000"))
    words = re.sub("[Nn]o\\.", "number", words.replace("#", "")).rstrip()
    words = re.sub(r"\b[A-Z]{2,4}\b", lambda short: initials(short[0]), words)
    said = " ".join(filter(None, (letters, cardinal(number) if is_round else digits(number)))).replace("- ", "-")
    return f"{words} {said}".lstrip()


def _flight(words: str, airline: str | None, number: str) -> str:
    letters = " ".join(airline or "")
    return f"{words} {letters} {digits(number) if len(number) > 2 else cardinal(number)}".replace("  ", " ")


def _pairs(number: str) -> str:
    """Four digits in pairs, ten ninety-nine; three as seven forty-seven."""
    return (
        f"{cardinal(number[:-2])} {two_digits(number[-2:])}"
        if number[-2:] != "00"
        else f"{cardinal(number[:-2])} hundred"
    )


def _hexadecimal(number: str) -> str:
    return " ".join(digits(character) if character.isdigit() else character.upper() for character in number)


def _serial(number: str) -> str:
    return groups_of_digits(number) + (" X" if number.endswith("X") else "")


def _variant(number: str) -> str:
    return f"{cardinal(number[0])} hundred" if len(number) == 3 and number.endswith("00") else cardinal(number)


_CODES: list[Rule] = [
    # OTP 482913, PIN: 0042, the code is 7391
    ("n", rf"\b((?:{_SECRETS})(?:{_NUMBER_SIGN}|\s)){_CODE}", _code),
    # order 48213, invoice no. 20391, account #1234
    ("n", rf"\b((?:{_NUMBERED}){_NUMBER_SIGN}){_CODE}", _code),
    ("n", rf"\b((?:{_NUMBERED})\s)(?=[A-Z]{{0,3}}-?[0-9]{{4}}){_NOT_A_YEAR}{_CODE}", _code),
    # card ending 8876, account ending in 0192, but not the year ending 2019
    (
        "n",
        r"\b((?:[Cc]ard|[Aa]ccount|[Aa]cct|[Nn]umber|[Pp]hone|Visa|Mastercard|MasterCard|Amex|IBAN)"
        r"(?:\snumber)?(?:\s(?:is|that))?\s(?:ending|ends)\s(?:in\s|with\s)?)()([0-9]{3,6})\b",
        _code,
    ),
    # flight 1549, Flight UA 245, flight BA2490
    (
        "n",
        r"\b([Ff]lights?(?:\s(?:number|no\.))?)\s([A-Z]{2}(?=\s?[0-9]))?\s?([0-9]{1,4})\b(?![.,:/][0-9]|\s(?!departs|lands|leaves|arrives|takes|boards|stops|flies)[a-z]{4,}s\b)",
        _flight,
    ),
    (
        "A",
        r"\b([A-Z]{2})\s?([0-9]{3,4})(?=\s(?:departs|lands|leaves|arrives|boards|flies)\b)",
        lambda line, n: f"{letters(line)} {digits(n)}",
    ),
    # RTX 4090, ISSN 1234-5679
    ("0", rf"(?=[0-9]{{4}}){behind('RTX|GTX|RX')}([0-9]{{4}})\b", _pairs),
    ("0", rf"(?=[0-9]{{4}}-){behind('ISSN')}([0-9]{{4}}-[0-9]{{3}}[0-9X])\b", _serial),
    # 3f2a9bc
    (
        "0a",
        r"(?<![\w-])(?=[a-f]{0,9}[0-9])(?=[0-9]{0,9}[a-f])(?=[0-9a-f]*[a-f][0-9]+[a-f])([0-9a-f]{7,40})(?![\w-])",
        _hexadecimal,
    ),
    # Python 3.12
    (
        "0",
        rf"(?=[0-9]{{1,2}}\.){behind('python|node|go|django|kubernetes|rust|scala|ruby|pytorch|version|typescript')}([0-9]{{1,2}})\.([1-9][0-9])(?![0-9.])",
        lambda major, minor: f"{cardinal(major)} point {cardinal(minor)}",
    ),
    # 0x1F, #FF8800
    ("0", r"0[xX]([0-9A-Fa-f]{1,16})\b", lambda number: f"zero X {_hexadecimal(number)}"),
    # two 1099s, Form 1040
    ("0", r"(10(?:40|95|98|99))['’]?s\b", lambda number: f"{_pairs(number)}s"),
    (
        "0",
        rf"(?=10){behind('form|a|IRS')}(10(?:40|95|98|99))\b(?![.,:/][0-9])(?=-?[A-Z]|\s(?:form|tax)|[^\w-]|\Z)",
        _pairs,
    ),
    ("0", r"(10(?:40|95|98|99))(?=-[A-Z])", _pairs),
    # Boeing 747-400, A320-200: no ranges
    ("0", r"(7[0-8]7)-([0-9]{1,3})\b(?!-)", lambda kind, variant: f"{_pairs(kind)} {_variant(variant)}"),
    ("A", r"\bA(3[0-9]{2})-([0-9]{1,4})\b(?!-)", lambda kind, variant: f"A {_pairs(kind)} {_variant(variant)}"),
]


def _telephone(number: str, extension: str | None = None) -> str:
    """Digits of a telephone number, with or without an extension: 555-555-5678 x12."""
    plus = "plus " if number.startswith("+") else ""
    if extension is None:
        return plus + groups_of_digits(number)
    return (
        f"{plus}{groups_of_digits(number)} extension {cardinal(extension) if len(extension) < 3 else digits(extension)}"
    )


_EXTENSION = r"(?:,?\s?(?:x|[Ee]xt\.?)\s?([0-9]{1,6})\b)?"

_GROUPS: list[Rule] = [
    # (555) 123-4567, (555)-123-4567, +1 555-123-4567, 1.555.123.4567, 555 123 4567 x12
    (
        "0-",
        r"(\+?(?:1[-.\s])?(?:\([0-9]{3}\)[-\s]?[0-9]{3}[-.\s]|[0-9]{3}(?:[-.\s][0-9]{3}[-.]|\s[0-9]{3}\s))[0-9]{4})"
        rf"(?![0-9]){_EXTENSION}",
        _telephone,
    ),
    # +44 20 7946 0958, +44 (0)20 7946 0958
    (
        "-",
        rf"(\+[0-9]{{1,3}}(?:[-.\s]?\([0-9]{{1,4}}\)\s?[0-9]{{0,4}}|[-.\s][0-9]{{1,6}}){{2,5}})(?![0-9]){_EXTENSION}",
        _telephone,
    ),
    # 0800 123 456, 020 7946 0958, 07700 900123
    (
        "0",
        rf"(0[0-9]{{2,4}}[-\s][0-9]{{3,4}}[-\s][0-9]{{3,6}}|\(0[0-9]{{2,4}}\)\s[0-9]{{3,4}}\s[0-9]{{3,4}}|0[0-9]{{4}}\s[0-9]{{5,6}})"
        rf"(?![0-9-]){_EXTENSION}",
        _telephone,
    ),
    # 1-800-FLOWERS
    ("0", r"1-([89])00-(?=[A-Za-z])", lambda digit: f"one {digits(digit)} hundred "),
    # 555-1234
    ("0", r"([2-9][0-9]{2})-([0-9]{4})(?![0-9-]|[.,][0-9])", _seven_digits),
    # call 911
    ("0", rf"(?=911){behind('call|dial|*called|*calling')}(911)\b", digits),
    # 978-0-306-40615-7, 9-1-1
    ("0", r"([0-9]{1,7}(?:[-–][0-9]{1,7}){2,6})(?![0-9-])", _number_with_dashes),
    # 1.2.3, 192.168.0.1
    ("0", r"([0-9]{1,9}(?:\.[0-9]{1,9}){2,6})(?![0-9])", _number_with_points),
    # 24/7, 9/11, 50/50, 401(k): fixed expressions
    ("0", r"24/7(?![0-9/])", lambda: "twenty-four seven"),
    ("0", r"9/11(?![0-9/])", lambda: "nine eleven"),
    ("0", r"50/50(?![0-9/])", lambda: "fifty-fifty"),
    ("0", r"401\(?[kK]\)?(?![A-Za-z])", lambda: "four oh one K"),
    # 1080p
    ("0", r"(480|720|1080|1440|2160)([pi])\b", _video_format),
]

# --- money ---

_COUNTRIES = {
    "US": "U S ",
    "CA": "Canadian ",
    "C": "Canadian ",
    "AU": "Australian ",
    "A": "Australian ",
    "NZ": "New Zealand ",
    "HK": "Hong Kong ",
    "S": "Singapore ",
    "NT": "New Taiwan ",
    "MX": "Mexican ",
}
SCALES = {
    "k": "thousand",
    "m": "million",
    "mn": "million",
    "b": "billion",
    "bn": "billion",
    "tn": "trillion",
    "t": "trillion",
}
_SIGNS = any_of(sign for sign in SIGNED if len(sign) == 1 and sign != "$")
_SIGN = rf"((?:\b(?:{'|'.join(_COUNTRIES)}))?\$|\bR\$|[{_SIGNS.replace('|', '')}]|\b(?:Rs|kr)\.?(?=\s?[0-9]))"
_SCALE = r"(?:[\s-]?(hundred|thousand|million|billion|trillion|lakh|crore)\b|([KMBT]|mn?|k|bn?|tn)\b)"
_ANY_SIGN = rf"[$£€¥{_SIGNS.replace('|', '')}]"

# Numbers as other countries write them. They become American ones before any rule of QUANTITIES applies.
_NARROW = "[\u00a0\u2009\u202f]"
_WITH_COMMA = r"[0-9]{1,3}(?:[.\s][0-9]{3}){1,4},[0-9]{1,2}|[0-9]{1,6},[0-9]{1,2}"
_WITH_POINTS = r"[0-9]{1,3}(?:\.[0-9]{3}){2,4}"
_NO_DIGIT = r"(?![0-9]|[.,][0-9])"
_START = r"(?<![0-9])(?<![0-9][.,])(?<![0-9]\s)"
_MONEY_BEHIND = rf"\s?(?:{_ANY_SIGN}(?!\s?[0-9])|(?:{any_of(CODES)}|kr|zł|Kč)\b)"
_UNIT_BEHIND = rf"\s?(?:%|°\s?[CF]?|(?:{any_of(UNITS.keys() - WORDS_AND_UNITS)})(?![\w]|\s?,))"
_GROUPED = r"(?:\s[0-9]{3}){2,4}|\s(?:000|[0-9]00|[0-9]{2}0)"


def _american(number: str, sign: str | None = "") -> str:
    """Write 1.234,56 as 1,234.56, and 10 000 as 10,000."""
    whole, _, rest = number.partition(",")
    whole = re.sub(r"[.\s]", "", whole)
    return f"{int(whole):,}" + (f".{rest}" if rest else "") + (sign or "")


NOTATION: list[Rule] = [
    # €5,50, € 1.234,50, €1.500, 1.000.000 €, 27,50 €
    ("-n", rf"{_SIGN}\s?({_WITH_COMMA}|{_WITH_POINTS}){_NO_DIGIT}", lambda sign, amount: sign + _american(amount)),
    ("-", rf"€\s?([0-9]{{1,3}}\.[0-9]{{3}}){_NO_DIGIT}", lambda amount: f"€{_american(amount)}"),
    ("0", rf"{_START}({_WITH_COMMA}|{_WITH_POINTS})({_MONEY_BEHIND})", _american),
    # 1.234,56; 0,5; 3,5 %
    (
        "0",
        rf"{_START}([0-9]{{1,3}}(?:[.\s][0-9]{{3}}){{1,4}},[0-9]{{1,2}}|0,[0-9]{{1,6}}){_NO_DIGIT}({_UNIT_BEHIND})?",
        _american,
    ),
    ("0", rf"{_START}([0-9]{{1,4}},[0-9]{{1,2}}){_NO_DIGIT}({_UNIT_BEHIND})", _american),
    # 1,00,000
    (
        "0-n",
        rf"(?:{_SIGN}\s?|)([0-9]{{1,2}}(?:,[0-9]{{2}}){{1,8}},[0-9]{{3}}){_NO_DIGIT}",
        lambda sign, amount: (sign or "") + _american(amount.replace(",", "")),
    ),
    # 10 000: with narrow spaces anywhere; with plain ones a number that is round, has more groups or counts something
    (
        "0",
        rf"{_START}([0-9]{{1,3}}(?:{_NARROW}[0-9]{{3}}){{1,8}}){_NO_DIGIT}({_MONEY_BEHIND}|{_UNIT_BEHIND})?",
        _american,
    ),
    (
        "0",
        rf"{_START}(?<!\+)([1-9][0-9]{{0,2}}(?:{_GROUPED}|\s[0-9]{{3}}(?={_MONEY_BEHIND}|{_UNIT_BEHIND}|\s(?:{any_of(MANY)})\b)))"
        rf"(?!\s?[-/:+]?[0-9]|[.,:/-][0-9])({_MONEY_BEHIND}|{_UNIT_BEHIND})?",
        _american,
    ),
]


def _money(
    article: str | None,
    sign: str,
    low: str,
    high: str | None = None,
    scale: str | None = None,
    short: str | None = None,
    noun: str | None = None,
) -> str:
    """Amount of money, or a range of two amounts."""
    one, many, *coins = SIGNED[sign if sign in SIGNED else sign[-1]]
    is_attributive = article is not None and noun is not None
    scale = SCALES[short.lower()] if short else scale
    whole, _, rest = low.replace(",", "").partition(".")
    country = _COUNTRIES.get(sign[:-1], "")
    if coins and len(rest) == 2 and not scale and (high is None or re.search(r"\.[0-9]{2}\Z", high)):
        amount = _notes_and_coins((whole, rest), ((country + one, country + many), tuple(coins)), is_attributive)
        return f"{amount} to {_money(None, sign, high)}" if high else amount
    amount = " ".join(part for part in (decimal(low), high and f"to {decimal(high)}", scale) if part)
    if is_attributive:
        return f"{amount}{'-' if amount.isalpha() and not country else ' '}{country}{one}"
    return f"{amount} {country}{one if amount == 'one' else many}"


def _notes_and_coins(numbers: tuple[str, ...], names: tuple[tuple[str, ...], ...], is_attributive: bool) -> str:
    """Read $3.50 as three dollars, fifty cents, as the cleaner does in training data; omit a part that is zero."""
    amounts = [
        f"{cardinal(str(int(number)))} {one if is_attributive or int(number) == 1 else many}"
        for number, (one, many) in zip(numbers, names, strict=True)
        if number.strip("0")
    ]
    return (" " if is_attributive else ", ").join(amounts) or f"zero {names[0][1]}"


def _in_currency(code: str, number: str, scale: str | None, short: str | None) -> str:
    """Amount behind the code of its currency: USD 500."""
    scale = SCALES[short.lower()] if short else scale
    return " ".join(part for part in (decimal(number), scale, UNITS[code][number != "1" or scale is not None]) if part)


_MONEY: list[Rule] = [
    # $5, £0.50, US$20, $2.5 million, $5M, $10-20, a $5 bill, Rs. 500
    (
        "n-",
        rf"{AFTER_ARTICLE}{_SIGN}\s?({NUMBER})(?:[kKMB]?{DASH}{_ANY_SIGN}?({NUMBER})(?!%))?{_SCALE}?{BEFORE_NOUN}",
        _money,
    ),
    # $-5
    ("n-", rf"{_SIGN}[-−]({NUMBER})", lambda sign, amount: f"minus {_money(None, sign, amount)}"),
    # 20€
    ("0-", rf"({NUMBER})\s?({_ANY_SIGN})(?!\s?\.?[0-9])", lambda amount, sign: _money(None, sign, amount)),
    # USD 500, EUR 2.5m
    ("n", rf"\b({any_of(CODES)})\s?({NUMBER}){_SCALE}?(?![\w%])", _in_currency),
]

QUANTITIES = [*_CODES, *_GROUPS, *_MONEY]

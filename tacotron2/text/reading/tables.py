"""Tables of reader.py: units, abbreviations, places, initials and rulers, and helpers that build patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable


def any_of(words: Iterable[str]) -> str:
    """Pattern that matches any of these words, the longest first."""
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


def _list(words: str) -> tuple[str, ...]:
    return tuple(words.split())


def _table(entries: str) -> dict[str, str]:
    """Parse "Inc Incorporated, et_al et al" over any number of lines: an abbreviation, a space, its reading."""
    entries_and_readings = (entry.split(" ", 1) for line in entries.strip().splitlines() for entry in line.split(", "))
    return {name.replace("_", " "): reading for name, reading in entries_and_readings}


def _add_capitalised(table: dict[str, str]) -> dict[str, str]:
    """Add each entry as it is written at the start of a sentence."""
    return {name[0].upper() + name[1:]: full[0].upper() + full[1:] for name, full in table.items()} | table


# Singular names; the plural follows a slash where it is irregular.
_UNITS = _table("""
km kilometer, m meter, cm centimeter, mm millimeter, nm nanometer, µm micrometer, mi mile, yd yard, yds yard, ft foot/feet
kg kilogram, g gram, mg milligram, µg microgram, mcg microgram, lb pound, lbs pound, oz ounce, in inch/inches
l liter, L liter, ml milliliter, mL milliliter, dL deciliter, gal gallon, qt quart, tsp teaspoon, tbsp tablespoon
h hour, hr hour, hrs hour, min minute, mins minute, s second, sec second, secs second, ms millisecond
wk week, wks week, mo month, mos month, yr year, yrs year
mph mile per hour/miles per hour, kph kilometer per hour/kilometers per hour, mpg mile per gallon/miles per gallon
rpm revolution per minute/revolutions per minute, bpm beat per minute/beats per minute, fps frame per second/frames per second
psi pound per square inch/pounds per square inch, dpi dot per inch/dots per inch, ppm part per million/parts per million
kbps kilobit per second/kilobits per second, Mbps megabit per second/megabits per second
Gbps gigabit per second/gigabits per second, kB kilobyte, KB kilobyte, MB megabyte, GB gigabyte, TB terabyte, PB petabyte
Hz hertz/hertz, kHz kilohertz/kilohertz, MHz megahertz/megahertz, GHz gigahertz/gigahertz, dB decibel, px pixel
W watt, kW kilowatt, MW megawatt, GW gigawatt, kWh kilowatt hour, MWh megawatt hour, hp horsepower/horsepower
V volt, kV kilovolt, mV millivolt, mA milliamp, mAh milliamp hour, cal calorie, kcal kilocalorie, kJ kilojoule
kPa kilopascal, hPa hectopascal, ° degree, °C degree Celsius/degrees Celsius, °F degree Fahrenheit/degrees Fahrenheit
°N degree north/degrees north, °S degree south/degrees south, °E degree east/degrees east, °W degree west/degrees west
% percent/percent, ‰ per thousand/per thousand, ¢ cent, ′ foot/feet, ″ inch/inches
USD U S dollar, CAD Canadian dollar, EUR euro, GBP pound, JPY yen/yen, CHF Swiss franc
MPH mile per hour/miles per hour, KM kilometer, CM centimeter, KG kilogram, LB pound, LBS pound, FT foot/feet, OZ ounce
""")
UNITS = {
    symbol: (one, many or one + "s") for symbol, (one, _, many) in ((s, n.partition("/")) for s, n in _UNITS.items())
}

# Before a name, with a point. The cleaner handles Mr., Dr., Gen. and others as in the training data.
TITLES = _table("""
Ms Miz, Messrs Messers, Prof Professor, Gov Governor, Sen Senator, Rep Representative, Pres President, Adm Admiral
Cmdr Commander, Cpl Corporal, Pvt Private, Fr Father, Amb Ambassador, Atty Attorney, Det Detective, Supt Superintendent
Asst Assistant, Mt Mount
""")
TITLES_WITHOUT_POINT = _table("Mr Mister, Mrs Misess, Ms Miz, Dr Doctor, St Saint, Mt Mount")
# Before a number, with a point.
BEFORE_NUMBER = _add_capitalised(
    _table("""
no number, nos numbers, pp pages, vol volume, vols volumes, ch chapter, op opus, fig figure, figs figures, sec section
art article, ext extension, eq equation, apt apartment, rm room, rte route, ste suite, ver version, par paragraph
""")
) | {"p": "page", "c": "circa", "ca": "circa"}
BEFORE_YEAR = _table("est established, Est Established, b born, d died")
# Anywhere, with a point: NEVER_LAST ends no sentence, ABBREVIATIONS may end one, IN_NAMES stands in names with capitals.
NEVER_LAST = _add_capitalised(
    _table("""
e.g for example, i.e that is, cf compare, viz namely, a.k.a also known as, approx approximately, est estimated, incl including
avg average
""")
)
ABBREVIATIONS = _table("""
etc et cetera, et_al et al, dept department, govt government, misc miscellaneous, assn association, tel telephone
bldg building, hwy highway, univ university, max maximum
""")
IN_NAMES = _table("""
Inc Incorporated, Corp Corporation, Co Company, Ltd Limited, Bros Brothers, Intl International, Jr Junior, Sr Senior, Esq Esquire
Prof Professor, Gov Governor, Sen Senator, Ave Avenue, Blvd Boulevard, Rd Road, Pkwy Parkway, Ln Lane, Mts Mountains
Calif California, Fla Florida, Ariz Arizona, Conn Connecticut, Minn Minnesota, Tenn Tennessee, Dept Department, Etc Et cetera
Govt Government, Misc Miscellaneous, Assn Association, Tel Telephone, Bldg Building, Hwy Highway, Univ University
""")
DAYS = _table("""
Mon Monday, Tue Tuesday, Tues Tuesday, Wed Wednesday, Thu Thursday, Thur Thursday, Thurs Thursday, Fri Friday
Sat Saturday, Sun Sunday
""")
SHORT_MONTHS = _list("Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec")

STREETS = _table("""
St Street, Dr Drive, Ave Avenue, Rd Road, Blvd Boulevard, Ln Lane, Ct Court, Pl Place, Hwy Highway, Pkwy Parkway, Sq Square
Ter Terrace
""")
DIRECTIONS = _table("N North, S South, E East, W West")
STATES = _table("""
AL Alabama, AK Alaska, AZ Arizona, AR Arkansas, CA California, CO Colorado, CT Connecticut, DE Delaware, FL Florida
GA Georgia, HI Hawaii, ID Idaho, IL Illinois, IN Indiana, IA Iowa, KS Kansas, KY Kentucky, LA Louisiana, ME Maine
MD Maryland, MA Massachusetts, MI Michigan, MN Minnesota, MS Mississippi, MO Missouri, MT Montana, NE Nebraska, NV Nevada
NH New Hampshire, NJ New Jersey, NM New Mexico, NY New York, NC North Carolina, ND North Dakota, OH Ohio, OK Oklahoma
OR Oregon, PA Pennsylvania, RI Rhode Island, SC South Carolina, SD South Dakota, TN Tennessee, TX Texas, UT Utah
VT Vermont, VA Virginia, WA Washington, WV West Virginia, WI Wisconsin, WY Wyoming
""")
# States only before a zip code: elsewhere these are words, names or degrees.
NOT_ALWAYS_STATES = _list("OK HI ME OR IN ID AL MD")

# Words that begin a sentence: they separate "in the U.S. He" from "the U.S. Army".
OPENERS = _list("""
A All An And As At But By For From He Her His How I If In It Its My No Not Now On One Our She So Some Such That The Their Then
There These They This Those To We What When Where While Who Why With Yes You Your
""")
# Words that are not names of streets.
NOT_STREET_NAMES = _list("Hello Hi Hey Thanks Dear Oh Well Ask Call See Visit")

# Read letter by letter despite a vowel; others with a vowel, such as NASA, are read as words.
SPELLED_WORDS = _list("""
ABC AC ACLU AD AFL AI AIG AM AMA AMC AOL API APR ASAP ATM ATV BA BIOS BMI CAD CEO CFO CIA CIO COO CPA CPI CPU CTO DIY DNA DOA
DOB DOE DOJ DUI ECG ECU EDT EEG EKG EPA ER ESL ESP ESPN EST ETA EU FAA FAQ FBI FDA FIFO FYI GDP GOP GPA GPU HBO HIV IBM ICU ID
IEEE IMF IOU IP IPA IPO IQ IRA IRS ISBN ISO ISP ITV IUD IVF JFK KIA LA LAPD LAX LED MBA MIA MIT MRI NAACP NBA NCAA NIH NSA NYU
OCD OEM OJ PA PDA PE POW PR PTA RNA ROI RPI RSVP SEC SEO SOS SUV TIA UAE UCL UCLA UFC UFO UI UK UN UPC UPS URL US USA USB USC
USSR UTC UTF UV UX VAT VIP VOA YMCA YWCA
""")
# A single letter after these is no initial: Vitamin C, Plan B.
BEFORE_LETTERS = _list("itamin lan rade art ection roup lass ype oint titis")

RULERS = _list("""
Alexander Alfonso Benedict Boniface Carl Catherine Charles Christian Clement Edward Elizabeth Ferdinand Francis Frederick
George Gregory Gustav Haakon Henry Innocent Ivan James John Julius Leo Louis Napoleon Nicholas Otto Paul Peter Philip Pius
Ptolemy Ramesses Ramses Richard Robert Rudolf Sixtus Umberto Urban Victoria Wilhelm William
""")
ROYAL_TITLES = _list("King Queen Pope Emperor Empress Tsar Czar Kaiser Sultan Pharaoh")
# Nouns before a Roman numeral; after those of NUMBERED_TO_TEN a single V or X is a number too.
NUMBERED_TO_TEN = _list("Chapter Part Book Volume Act Scene Article Episode Canto Lesson War")
COUNTED_NOUNS = (
    *NUMBERED_TO_TEN,
    *_list(
        "Bowl Section Title Phase Type Level Class Grade Stage Appendix Figure Table Mark Unit Fantasy Rocky Page Pages"
    ),
)
# Nouns after a Roman numeral, which is then an ordinal.
IN_ORDER = _list("century centuries dynasty dynasties corps olympiad")

# Endings that mark a name as an address or a file, without http:// or www. before it.
ENDINGS = _list("""
com org net edu gov mil info io ai tv dev app co.uk ac.uk pdf txt html csv json py js exe zip jpg png doc docx xls xlsx
""")
SPELLED_IN_ADDRESSES = _list("www edu io ai uk eu html exe faq api usa")
SIGNS_IN_ADDRESSES = {
    **{".": "dot", "@": "at", "/": "slash", "-": "dash", "_": "underscore", "+": "plus", "~": "tilde", ":": "colon"},
    **{"?": "question mark", "=": "equals", "&": "and", "#": "hash", "%": "percent"},
}
SIGNS = {
    **{
        "&": "and",
        "@": "at",
        "+": "plus",
        "%": "percent",
        "°": "degrees",
        "±": "plus or minus",
        "×": "times",
        "÷": "divided by",
    },
    **{
        "$": "dollar",
        "£": "pound",
        "€": "euro",
        "¥": "yen",
        "¢": "cent",
        "₹": "rupee",
        "₩": "won",
        "²": "squared",
        "³": "cubed",
    },
    **{"≤": "less than or equal to", "≥": "greater than or equal to", "≠": "is not equal to", "≈": "approximately"},
    **{"∞": "infinity", "√": "square root of", "§": "section", "©": "copyright", "№": "number", "→": "to"},
    **{"[": "(", "]": ")"},
}
WITH_SLASH = {
    "and/or": "and or",
    "w/o": "without",
    "w/": "with",
    "c/o": "care of",
    "n/a": "N A",
    "N/A": "N A",
    "s/he": "she or he",
}

"""Rules of reader.py for letters and signs: abbreviations, initials, symbols, addresses."""

from __future__ import annotations

import re

from common.reading import tables
from common.reading.dates import month
from common.reading.numbers import cardinal, digits, groups_of_digits, number_or_year, ordinal
from common.reading.patterns import POINT, Rule, any_of, behind

# --- abbreviations ---

_DAY_OR_MONTH = rf"(?:{any_of([*tables.DAYS, *tables.DAYS.values(), *tables.SHORT_MONTHS])}|May|June|July)"
# A capital after a name with a point does not prove that a sentence starts; only these words do.
_OPENER = rf"[\"'”’)\]]{{0,3}}(?:\s*\Z|\s+[\"'“‘(\[]?(?:{any_of(tables.OPENERS)})\b(?!\.))"
_POINT_OF_NAME = rf"(?:\.(?!{_OPENER}))?"
_STREET = (
    rf"((?!(?:{any_of(tables.OPENERS + tables.NOT_STREET_NAMES)})\b)[A-Z][a-z]+(?:['’]s)?|[0-9]{{1,3}}(?:st|nd|rd|th))"
)
_KIND = any_of(tables.STREETS)
_STATE = any_of(tables.STATES)


def _day_or_month(name: str) -> str:
    return tables.DAYS.get(name) or (name if name in tables.DAYS.values() else month(name))


def _street(name: str, kind: str) -> str:
    return f"{ordinal(name[:-2]) if name[0].isdigit() else name} {tables.STREETS[kind]}"


def _small_street(kind: str) -> str:
    return tables.STREETS[kind.capitalize()].lower()


_BEHIND_STATE = behind("|".join(f"{state}.{comma}" for state in tables.OLD_STATES for comma in ("", ",")))
_SAINTS = "louis|john|johns|paul|pauls|peter|petersburg|patrick|patricks|mary|marys|george|andrew|andrews|james|nicholas|helens"
# Behind a street without capitals: the end, or a word that is no name.
_NO_NAME = (
    r"\s*\Z|\s?[.,;:!?)]|\s(?:in|and|or|near|at|is|was|to|today|now|on|by|for|from|with|this|that|next|after|before)\b"
)

_ABBREVIATIONS: list[Rule] = [
    # Mon.-Fri., Jan-Dec
    (
        "A.",
        rf"\b({_DAY_OR_MONTH})\.?\s?[-–]\s?({_DAY_OR_MONTH})\b{POINT}",
        lambda first, last: f"{_day_or_month(first)} to {_day_or_month(last)}",
    ),
    # No. 5, p. 12, pp. 3-5, c. 1900
    ("n", rf"\b({any_of(tables.BEFORE_NUMBER)})\.\s?(?=[0-9#])", tables.BEFORE_NUMBER.__getitem__),
    (
        "n",
        rf"\b({any_of(tables.NUMBER_WITHOUT_POINT)})(?=\s[0-9])(?!\s[0-9]+(?:st|nd|rd|th)\b)",
        tables.NUMBER_WITHOUT_POINT.__getitem__,
    ),
    # No 10 Downing Street, but not "No 2 people"
    (
        "A",
        r"\bN[oO](?=\s[0-9]{1,5}(?:\s*\Z|[.,;:!?)](?![0-9])|\s(?:[A-Z]|(?:on|in|of|for|at|is|was|seed|ranked|single|hit)\b)))",
        lambda: "Number",
    ),
    ("n", rf"\b({any_of(tables.BEFORE_YEAR)})\.\s?(?=[12][0-9]{{3}}\b)", tables.BEFORE_YEAR.__getitem__),
    ("a", r"\bv(?=[0-9])", lambda: "version"),
    # 123 N. Oak Blvd.
    ("A", r"(?<=[0-9]\s)([NSEW])\.(?=\s[A-Z0-9])", tables.DIRECTIONS.__getitem__),
    (
        "A",
        rf"(?<![\w.])(?<![A-Z]\.\s)([NSEW])\.(?=\s(?:[0-9]+(?:st|nd|rd|th)|[A-Z][a-z]+\s(?:{_KIND}))\b)",
        tables.DIRECTIONS.__getitem__,
    ),
    ("A", rf"(?<=[0-9]\s)([NSEW])(?=\s[A-Z][a-z]+\s(?:{_KIND})\b)", tables.DIRECTIONS.__getitem__),
    # 123 Main St. Springfield: behind a house number it is a street
    ("0A", rf"(?:(?<=[0-9]\s)|(?<=\b[NSEW]\s)|(?<=\b[NSEW]\.\s)){_STREET}\s({_KIND})\b{_POINT_OF_NAME}", _street),
    # on Main St. today, 42nd St, but not St. John or Dr. Smith
    (
        "0A",
        rf"\b{_STREET}\s({_KIND})(?:(?=\.(?!\s+[A-Z]))|(?=\.{_OPENER})|(?![\w.'’]|\s[A-Z])){_POINT_OF_NAME}",
        _street,
    ),
    # 5th Ave New York: these abbreviations have no other meaning
    ("0A", rf"\b{_STREET}\s({any_of(tables.STREETS_ANYWHERE)})\b(?!['’]){_POINT_OF_NAME}", _street),
    # Boston, MA 02134; Austin, TX
    ("A", rf"\b({_STATE})(?=,?\s[0-9]{{5}}\b(?!,))", tables.STATES.__getitem__),
    (
        "0",
        rf"(?:(?<=\b(?:DC|{_STATE})\s)|(?<=\b(?:DC|{_STATE}),\s))([0-9]{{5}}(?:-[0-9]{{4}})?)(?![0-9]|,[0-9])",
        groups_of_digits,
    ),
    (
        "A",
        rf"(?<=,\s)(?!{any_of(tables.NOT_ALWAYS_STATES)})({_STATE})(?=\s*\Z|[,.;:)!?])",
        tables.STATES.__getitem__,
    ),
    # St. Louis, Mo., and Albany, N.Y.
    (
        "A",
        rf"\b((?!(?:{any_of(tables.OPENERS)})\b)[A-Z][a-z]{{2,}}),\s({any_of(tables.OLD_STATES)})(?=\.){_POINT_OF_NAME}",
        lambda town, state: f"{town}, {tables.OLD_STATES[state]}",
    ),
    (
        "0",
        rf"(?=[0-9]{{5}}){_BEHIND_STATE}([0-9]{{5}}(?:-[0-9]{{4}})?)(?![0-9]|,[0-9])",
        groups_of_digits,
    ),
    # 5th Fl., Hwy 61
    ("A", r"(?<=[0-9](?:st|nd|rd|th)\s)(?:Fl|FL)\b(?:\.(?!\s*\Z|\s+[A-Z]))?", lambda: "Floor"),
    (
        "A",
        r"\b(Hwy|Rte|Rt|Expy)\b\.?(?=\s[0-9])",
        lambda road: {"Hwy": "Highway", "Expy": "Expressway"}.get(road, "Route"),
    ),
    # Mr./Mrs. Smith
    ("A", r"\b(Mr|Mrs|Ms|Dr|Prof)\.?/(Mrs|Ms|Mr|Dr|Prof)\b\.?", lambda first, last: f"{first}. or {last}."),
    # Prof. Smith, Mt. Everest, and without a point Dr Smith
    (".", rf"\b({any_of(tables.TITLES)})\.(?=\s+[A-Z{{])", tables.TITLES.__getitem__),
    ("A", rf"\b({any_of(tables.TITLES_WITHOUT_POINT)})(?=\s[A-Z][a-z])", tables.TITLES_WITHOUT_POINT.__getitem__),
    # Mon 6/3, Sat 5pm
    (
        "A",
        rf"\b({any_of(tables.DAYS)})\b(?=,?\s(?:[0-9]{{1,2}}(?:/|:|\s?[ap]m\b)|(?i:{any_of(tables.SHORT_MONTHS)}|may|june|july)\b))",
        tables.DAYS.__getitem__,
    ),
    (
        "a",
        rf"\b(mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)\b\.?(?=,?\s(?:[0-9]{{1,2}}/[0-9]|(?:{any_of(tables.SHORT_MONTHS).lower()})\b\.?\s[0-9]))",
        lambda day: tables.DAYS[day.capitalize()],
    ),
    # e.g., etc., Inc., Jan.; Sun. and Sat. only before a date, as they may be words
    (".", rf"(?<![\w.])({any_of(tables.ABBREVIATIONS)})(?=\.(?!\.)){POINT}", tables.ABBREVIATIONS.__getitem__),
    (".", rf"(?<![\w.])({any_of(tables.NEVER_LAST)})\.(?!\.)", tables.NEVER_LAST.__getitem__),
    (".", rf"(?<![\w.])({any_of(tables.IN_NAMES)})(?=\.(?!\.)){_POINT_OF_NAME}", tables.IN_NAMES.__getitem__),
    (".", rf"\b({any_of(tables.SHORT_MONTHS)})(?=\.){POINT}", month),
    (".", rf"\b({any_of(tables.DAYS.keys() - {'Sat', 'Sun'})})(?=\.){POINT}", tables.DAYS.__getitem__),
    (
        ".",
        rf"\b(Sat|Sun)\.(?=,|\s(?:[0-9]|(?:{any_of(tables.SHORT_MONTHS)}|May|June|July)\b))",
        tables.DAYS.__getitem__,
    ),
    # dr smith on elm dr, st louis, 12 oak st
    ("a", rf"\bst\b\.?(?=\s(?:{_SAINTS})\b)", lambda: "saint"),
    ("a", rf"(?<=[a-z]\s)(st|dr|ave|rd|blvd)\b\.?(?<!\bthe\s..)(?<!\ba\s..)(?={_NO_NAME})", _small_street),
    ("a", r"\bdr\b\.?(?=\s[a-z]{2,})", lambda: "doctor"),
    # Ali vs Frazier, Roe v. Wade
    ("a", r"\bvs\b\.?", lambda: "versus"),
    ("a", r"(?<=[a-z]\s)v\.(?=\s[A-Z])", lambda: "versus"),
    ("a", r"(?<!\bslash\s)\betc\b", lambda: "et cetera"),
    ("a", r"\baka\b", lambda: "also known as"),
]

# --- initials: FBI, NYC and OECD are read letter by letter, but not NATO and STOP ---

# Read letter by letter, though they look like words. Those without a vowel need no entry, nor those of two or three letters
# that are no word, nor those that nobody can pronounce, such as OECD.
SPELLED_WORDS = frozenset(
    tables.words("""
AARP ABC AC ACL ACLU AD ADA AFL AI AIG ALS AM AMA AMC AMD APA API APR ASAP ATM ATP BA BIOS BMI CAD CEO CFO CIA CIO COO COPD CPA
CPI CPU CTO DIY DNA DOA DOB DOE DOJ DUI ECG ECU EDT EEG EKG EPA ER ESL ESP ESPN EST ETA EU EULA EV FAA FAQ FBI FDA FYI GDP GOP
GPA GPU HBO HIV IBM ICU ID IEEE IMF IMAP IMDB IMHO IOU IP IPA IPO IQ IRA IRL IRS ISBN ISO ISP ITV IUD IVF IAEA IDE AFAIK JFK KIA
LA LAPD LAX LED LSAT MBA MIA MIT MRI NAACP NBA NCAA NIH NSA NYU OCD OEM OJ PA PDA PE PHEV POV POW PR PTA RFID RIP RNA ROI RPI
RSVP SEC SEO SMS SOS SUV TIA UAE UAW UCL UCLA UFC UFO UI UK UN UPC UPS URI URL US USA USAF USB USC USPS USSR USDA UTC UTF UV UX
VAT VIP VOA YMCA YWCA WWE AFC AFAM
""")
)
# Words and names of two and three letters, which capitals only stress; others of this length are spelled.
SHORT_WORDS = frozenset(
    tables.words("""
AH AM AN AS AT AW AX AY BE BY DO EH EM EX GO HA HE HI HO IF IN IS IT LO MA ME MY NO OF OH ON OR OW OX PI SO TO UH UM UP WE YA YE
YO ACE ACT ADD AGE AGO AHA AID AIM AIR ALE ALL AND ANT ANY APE APP APT ARC ARE ARK ARM ART ASH ASK ATE AWE AXE BAD BAG BAN BAR
BAT BAY BED BEE BEG BET BID BIG BIN BIT BOB BOO BOW BOX BOY BUD BUG BUN BUS BUT BUY BYE CAB CAN CAP CAR CAT COD COP COW COY CRY
CUB CUE CUP CUT DAB DAD DAM DAN DAY DEN DEW DID DIE DIG DIM DIN DIP DOC DOG DON DOS DOT DRY DUB DUE DUG DUO DYE EAR EAT EEL EGG
EGO ELF ELK ELM END ERA EVE EYE FAB FAD FAN FAR FAT FAX FED FEE FEW FIG FIN FIT FIX FLU FLY FOE FOG FOR FOX FUN FUR GAG GAP GAS
GAY GEL GEM GET GIF GIG GIN GOD GOT GUM GUN GUT GUY GYM HAD HAM HAS HAT HAY HEM HEN HER HEY HID HIM HIP HIS HIT HOG HOP HOT HOW
HUB HUG HUH HUM HUT ICE ICY ILL INK INN ION ITS IVY JAB JAM JAN JAR JAW JAY JET JIM JOB JOE JOG JOY JUG KAY KEN KEY KID KIM KIN
KIT LAB LAD LAN LAP LAW LAY LEE LEG LEO LET LID LIE LIP LIT LOG LOL LOT LOU LOW MAC MAD MAN MAP MAR MAT MAX MAY MEN MET MIX MOB
MOM MOP MUD MUG MUM NAG NAH NAN NAP NAY NET NEW NIL NIT NOD NOR NOT NOW NUN NUT OAK OAR OAT ODD OFF OIL OLD ONE OUR OUT OWE OWL
OWN PAD PAL PAN PAT PAW PAY PEA PEG PEN PER PET PIE PIG PIN PIT PLY POD POP POT PRO PUB PUT RAG RAM RAN RAP RAT RAW RAY RED RIB
RID RIG RIM ROB ROD ROM RON ROT ROW ROY RUB RUG RUM RUN RYE SAD SAM SAP SAT SAW SAY SEA SEE SET SEW SEX SHE SHY SIM SIN SIP SIR
SIS SIT SIX SKI SKY SLY SOB SON SOY SPA SPY SUE SUM SUN TAB TAG TAN TAP TAR TAX TEA TED TEN THE THY TIE TIM TIN TIP TOE TOM TON
TOO TOP TOW TOY TRY TUB TUG TWO UGH URN USE VAN VET VIA VOW WAN WAR WAS WAX WAY WEB WED WEE WET WHO WHY WIG WIN WIT WOE WON WOO
WOW YAK YAM YAP YAY YEA YEN YEP YES YET YOU YUM ZAP ZEN ZIP ZOO SAN LEI BEN ANN AMY LIZ DEB DEE GUS HAL HUE IAN IKE KAI LES MEG
NED PAM RAE REX ROZ SAL SID TAJ TEX UNO VIC WES ZOE GNU NON NUM DIR SUB MIN VAL ARG INT VAR LIB DEV LEN OPT AMP MEL PIC GEN REV
COL HON MAJ ETC INC VIZ ESQ FRO ERE POE JEW FRY VEX RUE COT EKE ROE MAE GEE PEW PIP LOS LAS EL DE LE AL ED RE NE SRI MOD DUH MEH
NOM HAW WIZ FIB NUB JUT KIP NIX OPS PUN REP SOD SOP TIC VIM WEN YIP ZIT DUN FEN HOB JIB KOI LOX MOO NIP PUS RUT SAG TIL
""")
)
# Initials that are read as words, though no English word ends or begins in such consonants; the others are from CMUdict's words.
PRONOUNCED = frozenset(tables.words("JSON JPEG MPEG YAML ONNX NVIDIA SCSI CRISPR AWOL NSYNC SQRT"))
ONSETS = tables.words(
    """
bh bj bl br ch chr cl cr cz dh dr dw fl fr gh gl gn gr gw hl hr kh kl kn kr kv kw ll pf pfl ph pl pr ps rh sc sch schl schm schn
schr schw scr sh shr sk sl sm sn sp sph spl spr sq squ sr st str sv sw th thr thw tr ts tw vl wh wr zh phr
""".upper()
)
CODAS = tables.words(
    """
bb bbs bl bs bst bt bts ch chs cht ck cks cs ct cts cz dd dds ds dst dt dth dths ff ffs fs ft fts fth fths gg ggs gh ghn ghs ght
ghth ghts gn gns gs gt hm hn hr hs ks lb lbs lch ld lds lf lk lks ll lls lm lms ln lns lp lph lps ls lt lth lts ltz lz mb mbs mm
mms mn mns mp mph mps mpt mpts ms nc nch nct nd nds ndt ng ngs ngst ngth nk nks nn nns ns nst nt nth nths nts ntz nx nz pf ph
phs pp pps ps pt pth pths pts rb rbs rc rch rck rd rds rf rfs rg rk rks rl rld rls rm rms rmth rn rns rnt rp rps rr rrs rs rsh
rst rt rth rths rts rtz rx rz sch sh sk sks sm sms sp sps ss st sts tch th thm ths ts tt tts tz wd wds wk wks wth wl wls wn wns
ws xt xth xts zz
""".upper()
)
# Spelled elsewhere, these are words beside others in capitals: GIVE US A BREAK.
ALSO_WORDS = frozenset(tables.words("US AM AD ID LA PA OR IT WHO LED SEC"))
NO_INITIALS = "MR|MRS|MS|DR|ST|MT|JR|SR|FT|LT|NTH|PSST|TSK|PFFT|S?HM+|SHH*|[BG]RR+|MM+|ZZ+"

_PRONOUNCEABLE = re.compile(rf"(?:[^AEIOUY]|{any_of(ONSETS)})?[AEIOUY](?:.*[AEIOUY])?(?:[^AEIOUY]|{any_of(CODAS)})?")


def is_spelled(word: str) -> bool:
    """True for initials that are read letter by letter: NYC and OECD, but not NATO and STOP."""
    if word in SPELLED_WORDS:
        return True
    if len(word) < 4:
        return word not in SHORT_WORDS and not re.fullmatch(NO_INITIALS, word)
    return len(word) < 7 and word not in PRONOUNCED and not _PRONOUNCEABLE.fullmatch(word)


_NOT_AFTER = "".join(rf"(?<!{word}\s)" for word in tables.BEFORE_LETTERS)


def _letters(word: str, ending: str | None = None) -> str:
    """Spell letter by letter: F B I, and C D's for CDs."""
    return " ".join(word) + ("'s" if ending else "")


_INITIALS: list[Rule] = [
    # U.S., J.R.R. Tolkien
    (
        "A",
        rf"(?<![A-Za-z.])((?:[A-Z]\.)+[A-Z])(?![A-Za-z]){_POINT_OF_NAME}",
        lambda word: _letters(word.replace(".", "")),
    ),
    # a.m., p.m. without a time
    ("a", rf"(?<![\w.])([ap])\.\s?m(?=\.){POINT}", lambda half: f"{half.upper()} M"),
    # AT&T, R&B
    (
        "A",
        r"\b([A-Z]{1,3})&([A-Z]{1,3})(['’]?s)?(?![A-Za-z])",
        lambda first, last, ending: f"{_letters(first)} and {_letters(last, ending)}",
    ),
    # Ph.D., LL.D., PhD, iOS, mRNA
    ("A", rf"\b(Ph|LL|Ed|Sc)\.\s?([BD])(?![A-Za-z]){_POINT_OF_NAME}", lambda *words: _letters("".join(words).upper())),
    ("A", r"\bPhD(s)?\b", lambda ending: _letters("PHD", ending)),
    ("a", r"\b(iOS|mRNA|tRNA)\b", lambda word: _letters(word.upper())),
]


def _initials(word: str, ending: str | None = None) -> str:
    return _letters(word, ending) if is_spelled(word) else word + (ending or "")


def _shout(words: str) -> str:
    """Neighbouring words in capitals: if one of them is no initialism, those that may be words are words."""
    parts = re.split("([A-Z]+)", words)
    is_shout = any(len(part) > 1 and part not in ALSO_WORDS and not is_spelled(part) for part in parts[1::2])
    parts[1::2] = [
        part if len(part) == 1 or (is_shout and part in ALSO_WORDS) else _initials(part) for part in parts[1::2]
    ]
    return "".join(parts)


# Not applied to texts in capitals, where any word may look like an initialism.
INITIALISMS: list[Rule] = [
    # George W. Bush, but not a sentence that ends in Plan B.
    ("A", rf"(?<![\w.'’])(?<![A-Z]\s){_NOT_AFTER}([A-HJ-Z])\.(?=\s[A-Z])(?!{_OPENER})", lambda letter: letter),
    ("A", r"(?<![A-Za-z.])OK(?![A-Za-z])", lambda: "okay"),
    ("A", r"(?<![A-Za-z.])WW(I{1,2})(?![A-Za-z])", lambda number: f"World War {cardinal(str(len(number)))}"),
    # the WHO, our IT department, the US; 5 PM MT
    ("A", rf"(?:{behind('the|by')})(WHO|US|AD|ID|SEC|LED|AM)\b(?!['’&.][A-Za-z]|\s[A-Z]{{4}})", _letters),
    (
        "A",
        r"\b(WHO)(?=\s(?:said|says|declared|warned|estimates|recommends|recommended|reported|guidelines|officials|data|report)\b)",
        _letters,
    ),
    (
        "A",
        r"\b(IT)(?=\s(?:department|team|support|staff|manager|guy|industry|sector|security|services|infrastructure|company)\b)",
        _letters,
    ),
    ("A", r"(?<=[0-9]\s[AP]M\s)(MT)\b", _letters),
    # CO2, PS5
    ("A", r"(?<![A-Za-z.])([A-Z]{2})(?=[0-9])", _letters),
    # GIVE US A BREAK, I AM
    (
        "A",
        r"(?<![A-Za-z.&'’-])((?:[A-Z]{2,20}|[AI])(?:[,!?]?\s(?:[A-Z]{2,20}|[AI])){1,40})(?![A-Za-z&'’0-9-]|\.[A-Z])",
        _shout,
    ),
    # FBI, FBI's, CDs, NYC; in six or more letters without a vowel too
    (
        "A",
        rf"(?<![A-Za-z.])((?!(?:{NO_INITIALS})(?![A-Za-z]))[B-DF-HJ-NP-TV-XZ]{{2,6}})(['’]?s)?(?![A-Za-z])",
        _letters,
    ),
    ("A", r"(?<![A-Za-z.])([A-Z]{2,6})(['’]?s)?(?![A-Za-z]|['’][A-Z])", _initials),
]

# --- signs ---

_PATH = r"[\w.-]+/|(?:etc|usr|var|tmp|home|opt|dev|bin|proc|root|mnt)\b"
SIGNS: list[Rule] = [
    # dashes that the cleaner would drop: a pause within a sentence
    (" -", r"\A\s?[—―]+\s?", lambda: ""),
    (" -", r"(?<=[.,;:!?(])\s?[—―]+\s?", lambda: " "),
    (" -", r"\s?[—―]+(?=\s*\Z|\s?[.,;:!?)\"'”’])", lambda: ""),
    (" -", r"\s?[—―]+\s?", lambda: ", "),
    # hyphens stay, however many
    ("-", r"(-{2,})(?![->])", str),
    # ===== and other lines of signs
    ("-", r"(?<=\w)[=*#~_+/\\|<>^`]{3,}(?=\w)", lambda: " "),
    ("-", r"[=*#~_+/\\|<>^`]{3,}", lambda: ""),
    # he/she, and/or, w/o
    ("Aa", r"\b([Hh]e|[Ss]he|[Hh]is|[Hh]er|[Hh]im)/(he|she|his|hers?|him)\b", lambda first, last: f"{first} or {last}"),
    ("Aa", rf"(?<!\w)({any_of(tables.WITH_SLASH)})(?!\w)", tables.WITH_SLASH.__getitem__),
    ("a", r"\bw/(?=\w)", lambda: "with"),
    # this/that
    (" -", rf"(?<=\w)(?:/\s?|\s/\s?(?!{_PATH}))(?=\w)", lambda: "slash"),
    # a <= b, a -> b
    ("-", r"<=", lambda: "less than or equal to"),
    ("-", r">=", lambda: "greater than or equal to"),
    ("-", r"-+>", lambda: "to"),
    ("-", r"!=", lambda: "is not equal to"),
    ("-", r"=+", lambda: "equals"),
    ("-", r"(?<=\s)<(?=\s)", lambda: "less than"),
    ("-", r"(?<=\s)>(?=\s)", lambda: "greater than"),
    # p<0.05, <5 people, x > y; I <3 you
    ("-", r"(?<=\bI\s)<3\b|(?<=[a-z]{3}\s)<3(?=\s*(?:\Z|[!.]))", lambda: "heart"),
    ("-", r"<(?=\s?[-−]?[$£€]?\.?[0-9])|(?<=\b\w)<(?=\w\b(?!>))", lambda: "less than"),
    (
        "-",
        r"(?<!\A)(?<!\n)>(?=\s?[-−]?[$£€]?\.?[0-9])|>(?=[-−]?[$£€]?\.?[0-9])|(?<=\b\w)>(?=\w\b)",
        lambda: "greater than",
    ),
    # a * b; around words, as in *very*, it is left out
    (" ", r"(?<=\b\w)\s\*\s(?=\w\b)", lambda: "times"),
    ("-", r"(?<=\w\s)\*(?=\s\w)", lambda: "asterisk"),
    # C#, #topic
    ("-", r"(?<=\b[CF])#", lambda: "sharp"),
    ("-", r"#(?=[A-Za-z])", lambda: "hashtag"),
    # ~30
    ("-", r"~(?=\s?[$£€¥]?[0-9])", lambda: "about"),
    # names of files and variables
    ("-", r"(?<=\w)\\+|\\+(?=\w)", lambda: "backslash"),
    ("-", r"(?<=\w)_(?=\w)", lambda: "underscore"),
    (" -", r"\s?\|\s?", lambda: ", "),
    ("-", rf"([{re.escape(''.join(tables.SIGNS))}])", tables.SIGNS.__getitem__),
    # characters without a name and without a symbol; < > ® ™ stay for the list of what is left out
    ("-", r"[\"#*/\\^_`~\x00-\x08\x0e-\x1b\x7f]", lambda: ""),
]
# π, Δx, but not a word in Greek
_GREEK_LETTERS: list[Rule] = [
    ("a-", rf"([{''.join(tables.GREEK)}])(?![\u0370-\u03ff\u1f00-\u1fff]|[a-z]{{3}})", tables.GREEK.__getitem__),
]
WORDS = [*_ABBREVIATIONS, *_INITIALS, *_GREEK_LETTERS]

# --- addresses of machines and names of files ---

_VOWEL = re.compile("[^B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz]")  # y counts as a vowel here, and so do letters with an accent
_PLACE = r"[^\s{}\"<>“”]*[^\W_]"


def _address(text: str) -> str:
    """Read an address word by word, with names for the signs between."""
    parts = re.findall(r"[A-Za-z]+|[0-9]+|[^\w\s]|_|[^\W\d_]+", text)
    return " ".join(filter(None, map(_part_of_address, parts)))


def _part_of_address(part: str) -> str:
    if part.isdigit():
        return number_or_year(part) if len(part) in (1, 2, 4) and part[0] != "0" else digits(part)
    if part.isalpha():
        spells = part.lower() in tables.SPELLED_IN_ADDRESSES or (len(part) < 6 and not _VOWEL.search(part))
        return _letters(part.upper()) if spells else part
    return tables.SIGNS_IN_ADDRESSES.get(part, "")


def _host(name: str, port: str, path: str | None) -> str:
    """Address of a machine with a port, digit by digit: localhost:8080."""
    groups = name.split(".")
    host = " dot ".join(map(digits, groups)) if groups[0].isdigit() else _address(name)
    return f"{host} colon {digits(port)}" + (f" {_address(path)}" if path else "")


_ENDING = any_of(tables.ENDINGS)
_LABEL = "[A-Za-z0-9-]{1,63}"
ADDRESSES: list[Rule] = [
    # john.smith@example.com
    ("@", rf"(?<![\w.+-])(\w[\w.+-]{{0,63}}@{_LABEL}(?:\.{_LABEL}){{1,5}})\b", _address),
    # localhost:8080, 0.0.0.0:9090
    (
        "@",
        rf"(?<![\w@.-])(localhost|[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}}|[A-Za-z][A-Za-z0-9-]{{0,62}}(?:\.{_LABEL}){{0,3}}\.(?:{_ENDING}))"
        rf":([0-9]{{2,5}})\b(/{_PLACE})?/?",
        _host,
    ),
    # https://www.example.com/a/b?c=1: the scheme is left out
    ("@", rf"\b[Hh][Tt]{{2}}[Pp][Ss]?://({_PLACE})/?", _address),
    ("@", rf"\b([Ww]{{3}}\.{_PLACE})/?", _address),
    # youtu.be/abc, amazon.co.in, but not "over.it"
    (
        "@",
        rf"(?<![\w@./-])([A-Za-z0-9][A-Za-z0-9-]{{0,62}}(?:(?:\.{_LABEL}){{0,4}}\.(?:{any_of(tables.ENDINGS_AND_WORDS)})/{_PLACE}"
        rf"|\.(?:co|com|org|net|ac|gov)\.[a-z]{{2}}(?:/{_PLACE})?))(?![\w@-])/?",
        _address,
    ),
    # example.com/page, notes.txt, report_2023-04-01.pdf, src/main.cpp
    (
        "@",
        rf"(?<![\w@./-])([A-Za-z0-9][\w-]{{0,62}}(?:[./][\w-]{{1,63}}){{0,6}}\.(?:{_ENDING})(?:/{_PLACE})?)(?![\w@-])/?",
        _address,
    ),
    # /etc/hosts, ./etc, ~/.bashrc
    ("-", r"(?<![\w/.<])((?:~|\.{1,2})?/[\w.-]*[A-Za-z][\w.-]*(?:/[\w.-]+){1,9}(?<!\.))(?![\w<>])/?", _address),
    ("-", r"(?<![\w/.<])((?:~|\.{1,2})/[\w.-]*[A-Za-z][\w-]*(?:\.\w+)*)(?![\w<>])/?", _address),
    ("-", r"(?<![\w/.<])(/(?:etc|usr|var|tmp|home|opt|dev|bin|proc|root|mnt))(?![\w<>/])/?", _address),
]

"""Tables of reader.py: units, abbreviations, places, initials and rulers, books and endings of addresses."""

from __future__ import annotations


def words(text: str) -> tuple[str, ...]:
    """The words of a list."""
    return tuple(text.split())


def _table(entries: str) -> dict[str, str]:
    """Parse "Inc Incorporated, et_al et al" over any number of lines: an abbreviation, a space, its reading."""
    entries_and_readings = (entry.split(" ", 1) for line in entries.strip().splitlines() for entry in line.split(", "))
    return {name.replace("_", " "): reading for name, reading in entries_and_readings}


# Singular names; the plural follows a slash where it is irregular.
_UNITS = _table("""
ha hectare, Å angstrom, nmi nautical mile, fl_oz fluid ounce, fl._oz fluid ounce, cc cubic centimeter, cl centiliter
dl deciliter, µl microliter, µL microliter, kgs kilogram, ns nanosecond, µs microsecond, mol mole, mmol millimole
µmol micromole, mbps megabit per second/megabits per second, bps bit per second/bits per second, kbit kilobit, Mbit megabit
Gbit gigabit, Mb megabit, Gb gigabit, kb kilobit, KiB kibibyte, MiB mebibyte, GiB gibibyte, TiB tebibyte
mmHg millimeter of mercury/millimeters of mercury, Pa pascal, MPa megapascal, GPa gigapascal, mbar millibar, atm atmosphere
Ω ohm, kΩ kilohm, MΩ megohm, mΩ milliohm, µF microfarad, nF nanofarad, pF picofarad, mH millihenry/millihenries, Ah amp hour
Wh watt hour, µA microamp, µV microvolt, mW milliwatt, µW microwatt, GWh gigawatt hour, TWh terawatt hour, eV electronvolt
keV kiloelectronvolt, MeV megaelectronvolt, TeV teraelectronvolt, GeV gigaelectronvolt, lm lumen, Nm newton meter, kN kilonewton
km kilometer, m meter, cm centimeter, mm millimeter, nm nanometer, µm micrometer, mi mile, yd yard, yds yard, ft foot/feet
kg kilogram, g gram, mg milligram, µg microgram, mcg microgram, lb pound, lbs pound, oz ounce, in inch/inches, l liter, L liter
ml milliliter, mL milliliter, dL deciliter, gal gallon, qt quart, tsp teaspoon, tbsp tablespoon, h hour, hr hour, hrs hour
min minute, mins minute, s second, sec second, secs second, ms millisecond, wk week, wks week, mo month, mos month, yr year
yrs year, mph mile per hour/miles per hour, kph kilometer per hour/kilometers per hour, mpg mile per gallon/miles per gallon
rpm revolution per minute/revolutions per minute, bpm beat per minute/beats per minute, fps frame per second/frames per second
psi pound per square inch/pounds per square inch, dpi dot per inch/dots per inch, ppm part per million/parts per million
kbps kilobit per second/kilobits per second, Mbps megabit per second/megabits per second
Gbps gigabit per second/gigabits per second, kB kilobyte, KB kilobyte, MB megabyte, GB gigabyte, TB terabyte, PB petabyte
Hz hertz/hertz, kHz kilohertz/kilohertz, MHz megahertz/megahertz, GHz gigahertz/gigahertz, dB decibel, px pixel, W watt
kW kilowatt, MW megawatt, GW gigawatt, kWh kilowatt hour, MWh megawatt hour, hp horsepower/horsepower, V volt, kV kilovolt
mV millivolt, mA milliamp, mAh milliamp hour, cal calorie, kcal kilocalorie, kJ kilojoule, kPa kilopascal, hPa hectopascal
° degree, °C degree Celsius/degrees Celsius, °F degree Fahrenheit/degrees Fahrenheit, °N degree north/degrees north
°S degree south/degrees south, °E degree east/degrees east, °W degree west/degrees west, % percent/percent
‰ per thousand/per thousand, ¢ cent, ′ foot/feet, ″ inch/inches, MPH mile per hour/miles per hour, KM kilometer, CM centimeter
KG kilogram, LB pound, LBS pound, FT foot/feet, OZ ounce
""")
# Units that are also words: "s" needs a space before it, "W" no street behind it, "in" a point or a direction.
WORDS_AND_UNITS = frozenset({"s", "W", "in"})
# Codes of currencies, before or behind an amount; these and the signs of SIGNED below have the form of units.
CODES = _table("""
USD U S dollar, CAD Canadian dollar, AUD Australian dollar, NZD New Zealand dollar, HKD Hong Kong dollar, SGD Singapore dollar
EUR euro, GBP pound, JPY yen/yen, CNY yuan/yuan, RMB yuan/yuan, CHF Swiss franc, INR Indian rupee, KRW Korean won/Korean won
SEK Swedish krona/Swedish kronor, NOK Norwegian krone/Norwegian kroner, DKK Danish krone/Danish kroner, PLN zloty
CZK Czech koruna, HUF forint, RUB ruble, MXN Mexican peso, BRL Brazilian real/Brazilian reais, ZAR rand/rand, THB baht/baht
IDR rupiah/rupiah, VND dong/dong, ILS shekel, AED dirham, SAR riyal, NGN naira/naira, UAH hryvnia, PKR Pakistani rupee
""")
# Codes that are also words or names before a number, and abbreviations behind an amount.
_BEHIND = _table("TRY lira/lira, PHP peso, BTC bitcoin, ETH ether/ether, kr krone/kroner, zł zloty, Kč koruna")
# The name of a currency by its sign; coins follow where prices have them.
SIGNED = {
    sign: tuple(names.split("/"))
    for sign, names in _table("""
$ dollar/dollars/cent/cents, £ pound/pounds/penny/pence, € euro/euros/cent/cents, ₹ rupee/rupees/paisa/paise, ¥ yen/yen, ₩ won/won
₺ lira/lira/kurush/kurush, ₱ peso/pesos/centavo/centavos, ₽ ruble/rubles/kopeck/kopecks, ₪ shekel/shekels/agora/agorot
₦ naira/naira/kobo/kobo, ₴ hryvnia/hryvnias, ₫ dong/dong, ฿ baht/baht, ₿ bitcoin/bitcoins, ₡ colon/colones, ₲ guarani/guaranis
₵ cedi/cedis, ₸ tenge/tenge, ₾ lari/lari, ₼ manat/manat, ₨ rupee/rupees, R$ Brazilian real/Brazilian reais/centavo/centavos
Rs rupee/rupees/paisa/paise, Rs. rupee/rupees/paisa/paise, kr krone/kroner/øre/øre, kr. krone/kroner/øre/øre
""").items()
}
UNITS = {
    symbol: (one, many or one + "s")
    for symbol, (one, _, many) in ((s, n.partition("/")) for s, n in {**_UNITS, **CODES, **_BEHIND}.items())
}

# Every abbreviation once, with the places where it is read in full:
#   T before a name, with a point (the cleaner handles Mr., Dr., Gen. and others as in the training data); t without one too
#   N before a number, with a point; n there without a point too; Y before a year
#   L anywhere, with a point, and never at the end of a sentence; A anywhere, with a point, perhaps at the end; C likewise in names
#   S behind the name of a street; s there where another street or a place may follow without a comma
_SHORT_FORMS = """
Mr Mister t; Mrs Misess t; Ms Miz Tt; Dr Doctor t; St Saint t; Mt Mount Tt; Messrs Messers T; Prof Professor TC; Gov Governor TC
Sen Senator TC; Rep Representative T; Pres President T; Adm Admiral T
Cmdr Commander T; Cpl Corporal T; Pvt Private T; Fr Father T
Amb Ambassador T; Atty Attorney T; Det Detective T; Supt Superintendent T; Asst Assistant T
no number N; nos numbers Nn; p page N; pp pages Nn; pg page Nn; pgs pages Nn; vol volume Nn; vols volumes Nn; ch chapter Nn
op opus N; fig figure Nn; figs figures Nn; sec section N; art article N; ext extension Nn; eq equation Nn; apt apartment Nn
rm room Nn; rte route Nn; rt route N; ste suite Nn; ver version N; par paragraph N; c circa N; ca circa N; fl floor N
est established Y; b born Y; d died Y
e.g for example L; i.e that is L; cf compare L; viz namely L; a.k.a also known as L; approx approximately L; est estimated L
incl including L; avg average L
etc et cetera AC; et_al et al A; dept department AC; govt government AC; misc miscellaneous AC; assn association AC
tel telephone AC; bldg building AC; univ university AC; max maximum A
Inc Incorporated C; Corp Corporation C; Co Company C; Ltd Limited C; Bros Brothers C; Intl International C; Jr Junior C
Sr Senior C; Esq Esquire C; Mts Mountains C
St Street S; Dr Drive S; Ct Court S; Pl Place S; Sq Square S
Ter Terrace S; Cir Circle S; Plz Plaza S; Trl Trail S; Cres Crescent S
Ave Avenue SsC; Rd Road SsC; Blvd Boulevard SsC; Ln Lane SC; hwy highway SsAC; Pkwy Parkway SsC; Expy Expressway SsC
Fwy Freeway SsC; Tpke Turnpike SsC
"""
_ENTRIES = [entry.rsplit(" ", 1) for line in _SHORT_FORMS.strip().splitlines() for entry in line.split("; ")]


def _short_forms(place: str, capitalised: bool = False) -> dict[str, str]:
    """Abbreviations of a place with their readings; `capitalised` as in names."""
    pairs = (entry.split(" ", 1) for entry, places in _ENTRIES if place in places)
    table = {short.replace("_", " "): full for short, full in pairs}
    return {_capital(short): _capital(full) for short, full in table.items()} if capitalised else table


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _add_capitalised(table: dict[str, str]) -> dict[str, str]:
    """Add each entry as it is written at the start of a sentence and in capitals."""
    return {
        **{name.upper(): full for name, full in table.items() if name.isalpha() and len(name) > 1},
        **{_capital(name): _capital(full) for name, full in table.items() if len(name) > 1},
        **table,
    }


TITLES = _short_forms("T")
TITLES_WITHOUT_POINT = _short_forms("t")
BEFORE_NUMBER = _add_capitalised(_short_forms("N"))
NUMBER_WITHOUT_POINT = _add_capitalised(_short_forms("n"))
BEFORE_YEAR = {**_short_forms("Y"), "Est": "Established"}
NEVER_LAST = {name: full for name, full in _add_capitalised(_short_forms("L")).items() if not name.isupper()}
ABBREVIATIONS = _short_forms("A")
STREETS = _short_forms("S", capitalised=True)
STREETS_ANYWHERE = _short_forms("s", capitalised=True)

DAYS = _table("""
Mon Monday, Tue Tuesday, Tues Tuesday, Wed Wednesday, Thu Thursday, Thur Thursday, Thurs Thursday, Fri Friday
Sat Saturday, Sun Sunday
""")
SHORT_MONTHS = words("Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec")

DIRECTIONS = _table("N North, S South, E East, W West")
STATES = _table("""
AL Alabama, AK Alaska, AZ Arizona, AR Arkansas, CA California, CO Colorado, CT Connecticut, DE Delaware, FL Florida
GA Georgia, HI Hawaii, ID Idaho, IL Illinois, IN Indiana, IA Iowa, KS Kansas, KY Kentucky, LA Louisiana, ME Maine
MD Maryland, MA Massachusetts, MI Michigan, MN Minnesota, MS Mississippi, MO Missouri, MT Montana, NE Nebraska, NV Nevada
NH New Hampshire, NJ New Jersey, NM New Mexico, NY New York, NC North Carolina, ND North Dakota, OH Ohio, OK Oklahoma
OR Oregon, PA Pennsylvania, RI Rhode Island, SC South Carolina, SD South Dakota, TN Tennessee, TX Texas, UT Utah
VT Vermont, VA Virginia, WA Washington, WV West Virginia, WI Wisconsin, WY Wyoming
""")
# Nouns behind large numbers: 1.2m views.
MANY = words("""
views users people followers subscribers downloads copies viewers fans customers clients residents inhabitants jobs homes houses
households children voters votes tonnes tons barrels streams likes plays hits members players visitors records rows tokens lines
students workers dollars pounds euros yen deaths cases doses units tickets passengers refugees migrants messages parameters words
articles books songs images photos videos cars vehicles trees acres hectares shares stars downloads installs devices subscriptions
monthly daily active more new registered paying years lives soldiers troops men women families patients babies births tourists
""")
# Nouns behind a fraction, which measure: 3/5 cup.
MEASURES = words("""
cup cups teaspoon teaspoons tablespoon tablespoons tsp tbsp ounce ounces oz pound pounds lb lbs gram grams g kg kilo kilos pint
pints quart quarts gallon gallons liter liters litre litres ml inch inches in foot feet ft yard yards mile miles mi meter meters
metre metres km cm mm acre acres hour hours hr minute minutes min second seconds day days week weeks month months year years
degree degrees percent ton tons share shares dozen point points size pay price turn turns majority
""")
# Nouns behind a pair of numbers with a slash that counts, and nouns before one: 37/100 files, step 3/5.
COUNTED = words("""
files tests items students people pages points questions patients users votes tasks steps players seats stars servers members passed
done complete completed failed correct answered remaining online uploaded downloaded attended available dentists doctors experts
participants respondents chapters episodes lessons games matches stages levels photos images pictures videos rows lines records
checks nodes jobs workers builds packages modules tickets spots places slots teams countries states schools employees women men
children kids adults companies attempts tries goals wins
""")
COUNTING = words("""
step page part slide chapter question task item round level lesson episode test image photo file batch epoch phase attempt score
scored scores rated rating progress chunk line row lap game match section problem exercise module video track volume issue
iteration downloading loading processing uploading installing copying building compiling battery health sheet card stage message
tweet day week unit frame
""")
# The older abbreviations of states, with a point behind a town and a comma.
OLD_STATES = _table("""
Ala Alabama, Ariz Arizona, Ark Arkansas, Cal California, Calif California, Colo Colorado, Conn Connecticut, Del Delaware
Fl Florida, Fla Florida, Ga Georgia, Ill Illinois, Ind Indiana, Ia Iowa, Kan Kansas, Kans Kansas, Ky Kentucky, La Louisiana
Md Maryland, Mass Massachusetts, Mich Michigan, Minn Minnesota, Miss Mississippi, Mo Missouri, Mont Montana, Neb Nebraska
Nebr Nebraska, Nev Nevada, Okla Oklahoma, Ore Oregon, Oreg Oregon, Pa Pennsylvania, Penn Pennsylvania, Tenn Tennessee, Tex Texas
Vt Vermont, Va Virginia, Wash Washington, Wis Wisconsin, Wisc Wisconsin, Wyo Wyoming, N.H New Hampshire, N.J New Jersey
N.M New Mexico, N.Y New York, N.C North Carolina, N.D North Dakota, R.I Rhode Island, S.C South Carolina, S.D South Dakota
W.Va West Virginia, W.V West Virginia
""")
IN_NAMES = {
    **_short_forms("C", capitalised=True),
    **{name: OLD_STATES[name] for name in words("Ariz Calif Conn Fla Minn Tenn")},  # they have no other meaning
}
# States only before a zip code: elsewhere these are words, names or degrees.
NOT_ALWAYS_STATES = words("OK HI ME OR IN ID AL MD")

# Words that begin a sentence: they separate "in the U.S. He" from "the U.S. Army".
OPENERS = words("""
A All An And As At But By For From He Her His How I If In It Its My No Not Now On One Our She So Some Such That The Their Then
There These They This Those To We What When Where While Who Why With Yes You Your
""")
# Words that are not names of streets.
NOT_STREET_NAMES = words("Hello Hi Hey Thanks Dear Oh Well Ask Call See Visit")

# A single letter after these is no initial: Vitamin C, Plan B.
BEFORE_LETTERS = words("itamin lan rade art ection roup lass ype oint titis")

# Names before the number of a king, an emperor, a sultan, a pope or a patriarch.
RULERS = words("""
Abbas Abdulaziz Abdullah Abdulmejid Adrian Afonso Agapetus Agrippa Ahmed Ahmose Alaric Albert Alexander Alexios Alexis Alexius
Alfonso Alfred Amadeus Amalric Amenemhat Amenhotep Amyntas Anastasius Andrew Andronikos Antigonus Antiochus Ardashir Artaxerxes
Ashurnasirpal Athanasius Attalus Augustus Baldwin Bartholomew Basil Bayezid Beatrix Bela Benedict Berengar Bernard Bogdan
Bohemond Boleslaw Boniface Boris Callixtus Canute Carl Carloman Carlos Carol Casimir Catherine Celestine Charles Childebert
Childeric Chilperic Chlothar Christian Christopher Clement Cleomenes Cleopatra Clovis Cnut Conrad Constans Constantine
Constantius Cosimo Cyril Cyrus Dagobert Damasus Darius David Demetrius Dionysius Dmitry Donald Duncan Edgar Edmund Edward
Elizabeth Emmanuel Eric Erik Ernest Ethelred Eugene Eugenius Eumenes Faisal Farouk Felipe Felix Feodor Ferdinand Fernando
Filippo Francis Franz Frederick Frederik Fuad Fulk Fyodor Galeazzo Garcia Gelasius Geoffrey George Godfrey Gregory Guido Gustav
Gustavus Haakon Hadrian Hakon Harald Harold Hassan Hattusili Henri Henry Hiero Honorius Hugh Humbert Hussein Hyrcanus Ibrahim
Innocent Isaac Isabel Isabella Ismail Ivan James Jan Jayavarman Jean Jerome Jigme Joan John Joseph Juan Julius Justin Justinian
Kamehameha Karl Kenneth Khosrow Ladislaus Leo Leopold Llywelyn Lothair Louis Lucius Ludwig Magnus Mahmoud Mahmud Malcolm Manuel
Marcellus Margaret Margrethe Maria Martin Mary Matthias Maurice Maximilian Mehmed Menelik Mentuhotep Michael Mieszko Miguel
Mithridates Moctezuma Mohammed Montezuma Muhammad Murad Mursili Mustafa Napoleon Nebuchadnezzar Nerses Nicholas Nicomedes
Norodom Olaf Olav Ordoño Orhan Oscar Osman Oswald Otto Ottokar Paschal Paul Pedro Pelagius Pepin Perdiccas Peter Philip Philippe
Phraates Pileser Pius Pomare Prusias Psamtik Ptolemy Rainier Rama Ramesses Ramiro Ramses Raymond Richard Robert Roderick Roger
Romanos Rudolf Rupert Sancho Sargon Sebastian Selassie Seleucus Selim Sergius Seti Shalmaneser Shapur Sigismund Silvester Simeon
Sixtus Sobekhotep Stanislaus Stanislaw Stefan Stephen Suleiman Sverre Sviatoslav Sylvester Symmachus Tahmasp Tancred Tarquin
Tewodros Theobald Theoderic Theodora Theodore Theodoric Theodosius Theudebert Thutmose Tiberius Tigranes Tupac Tutankhamun
Umberto Urban Valdemar Valentinian Vasily Victor Victoria Vigilius Vittorio Vlad Vladimir Vladislaus Vologases Vytautas Waldemar
Wenceslaus Wilhelm Wilhelmina Willem William Wladyslaw Xerxes Yaroslav Yazdegerd Yohannes Yusuf Zachary Zeno Zog
""")
# Given names before a family name with a number, which they do not share with rulers.
GIVEN_NAMES = words("""
Adam Adlai Alan Alec Anthony Arthur Ben Benjamin Cal Davis Ken Brian Calvin Chris Clarence Cornelius Daniel Dennis Douglas
Dwight Earl Edwin Ernest Frank Franklin Fred Gary Gerald Griffin Harry Harvey Herbert Howard Hugh Jack Jacob Jay Jeff Jeffrey
Jim Joe Jonathan Kenneth Kevin Larry Lawrence Loudon Mark Matthew Nelson Patrick Ralph Ray Ronald Ross Roy Russell Sam Samuel
Scott Stuart Theodore Thomas Thurston Timothy Tom Trey Walter Warren Winthrop
""")
ROYAL_TITLES = words("""
King Queen Pope Emperor Empress Tsar Czar Kaiser Sultan Pharaoh Prince Princess Duke Count Archduke Shah Khan Caliph Patriarch
Antipope Margrave Elector Landgrave Catholicos Doge Khagan Emir Negus Maharaja Bishop Archbishop
""")
# Behind "Charles I" these show that the numeral is meant; behind "I", they cannot follow the pronoun or seldom do.
AFTER_FIRST = words("""
of and was is had has did in on at by to who whose as for with from until ruled reigned died became made came took gave
succeeded began built married sent won lost fled led or when the
""")
# Verbs that follow the pronoun: the part I like.
AFTER_PRONOUN = words("""
am have do don did didn would wouldn will can could couldn cannot should might must want wanted like liked love loved hate hated
need needed know knew think thought read wrote see saw play played use used bought buy ordered order get got remember mean meant
enjoy enjoyed prefer preferred take took mentioned said told wish miss missed hope guess believe
""")
ADVERBS = words("always never just really actually also")
# Nouns before a Roman numeral; after those of NUMBERED_TO_TEN a single V or X is a number too.
NUMBERED_TO_TEN = words("Chapter Part Book Volume Act Scene Article Episode Canto Lesson War")
COUNTED_NOUNS = (
    *NUMBERED_TO_TEN,
    *words(
        "Bowl Apollo Section Title Phase Type Level Class Grade Stage Appendix Figure Table Mark Unit Fantasy Rocky Page Pages"
    ),
)
# Nouns after a Roman numeral, which is then an ordinal.
IN_ORDER = words(
    "century centuries dynasty dynasties corps olympiad dalai corinthians thessalonians chronicles maccabees esdras"
)
# Books of the Bible before a chapter and a verse; of those in the second list there are several.
BIBLE = _table("""
Gen Genesis, Exod Exodus, Ex Exodus, Lev Leviticus, Num Numbers, Deut Deuteronomy, Josh Joshua, Judg Judges, Neh Nehemiah
Ps Psalm, Pss Psalms, Prov Proverbs, Eccl Ecclesiastes, Isa Isaiah, Jer Jeremiah, Lam Lamentations, Ezek Ezekiel, Dan Daniel
Hos Hosea, Obad Obadiah, Mic Micah, Nah Nahum, Hab Habakkuk, Zeph Zephaniah, Hag Haggai, Zech Zechariah, Mal Malachi
Matt Matthew, Mt Matthew, Mk Mark, Lk Luke, Jn John, Rom Romans, Gal Galatians, Eph Ephesians, Phil Philippians, Col Colossians
Philem Philemon, Heb Hebrews, Jas James, Rev Revelation, Sam Samuel, Kgs Kings, Chr Chronicles, Chron Chronicles
Cor Corinthians, Thess Thessalonians, Tim Timothy, Pet Peter, Macc Maccabees, Tit Titus
""")
BOOKS = frozenset(
    [
        *BIBLE.values(),
        *words("Ruth Esther Ezra Job Joel Amos Jonah Acts Jude Sirach Tobit Judith Wisdom Baruch Revelations Psalms"),
    ]
)

# Endings that mark a name as an address or a file, without http:// or www. before it.
ENDINGS = words("""
com org net edu gov mil info biz io ai tv dev app xyz online co uk co.uk ac.uk ca au nz ie de fr es pt nl pl cz sk hu ro bg gr
ru ua tr dk fi ch lu eu jp cn kr tw hk sg th vn ph mx ar cl za ng ke eg ly gg fm pdf txt html htm csv tsv json jsonl py js ts
tsx jsx exe zip jpg jpeg png gif svg bmp webp tiff doc docx xls xlsx ppt pptx odt rtf epub tex md rst mp3 mp4 wav flac ogg opus
m4a avi mov mkv webm xml yml yaml toml ini cfg conf log sql db sh dll iso tar gz tgz rar 7z bz2 xz cpp hpp java rb php css scss
rs ipynb pth onnx bin dat bak tmp apk dmg deb rpm whl jar lock env
""")
# Endings of addresses that are also words: only with a path or behind another point.
ENDINGS_AND_WORDS = words("it is in at be us me to my so am as do id no la st ms se")
SPELLED_IN_ADDRESSES = words("""
www edu io ai uk eu html exe faq api usa fr de es nl ie ca au ly id md mp uk jp ru ch ua eu us nz za br ar il ua ac ua cfg
""")
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
        "¢": "cent",
        "²": "squared",
        "³": "cubed",
    },
    **{"≤": "less than or equal to", "≥": "greater than or equal to", "≠": "is not equal to", "≈": "approximately"},
    **{"∞": "infinity", "√": "square root of", "§": "section", "©": "copyright", "№": "number", "→": "to"},
    **{
        "♥": "heart",
        "❤": "heart",
        "♡": "heart",
        "★": "star",
        "☆": "star",
        "✓": "check",
        "✔": "check",
        "♯": "sharp",
        "♭": "flat",
    },
    **{
        "∆": "delta",
        "∑": "sum of",
        "∏": "product of",
        "∫": "integral of",
        "∂": "partial",
        "∇": "nabla",
        "∝": "proportional to",
    },
    **{
        "∈": "in",
        "∉": "not in",
        "∪": "union",
        "∩": "intersection",
        "⊂": "subset of",
        "∀": "for all",
        "∃": "there exists",
    },
    **{
        "⇒": "implies",
        "↑": "up",
        "↓": "down",
        "←": "left arrow",
        "↔": "to and from",
        "∴": "therefore",
        "≡": "is equivalent to",
    },
    **{
        "≪": "much less than",
        "≫": "much greater than",
        "∼": "about",
        "≅": "approximately",
        "∅": "empty set",
        "℃": "degrees Celsius",
    },
    **{sign: names[0] for sign, names in SIGNED.items() if len(sign) == 1},
    **{"[": "(", "]": ")"},
}
_GREEK = dict(
    zip(
        "αβγδεζηθικλμνξοπρστυφχψω",
        words("""
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi psi omega
"""),
    )
)
GREEK = {
    **_GREEK,
    **{letter.upper(): name for letter, name in _GREEK.items()},
    **{"ς": "sigma", "ϑ": "theta", "ϕ": "phi", "ϵ": "epsilon", "µ": "mu", "Ω": "omega", "ϰ": "kappa", "ϱ": "rho"},
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
# ARPAbet for the sounds of English in the International Phonetic Alphabet.
IPA_VOWELS = _table("""
iː IY, i IY, ɪ IH, eɪ EY, ɛ EH, e EH, æ AE, ɑː AA, ɑ AA, ɒ AA, ɔː AO, ɔ AO, oʊ OW, əʊ OW, o OW, ʊ UH, uː UW, u UW, ʌ AH, ə AH
aɪ AY, aʊ AW, ɔɪ OY, ɜːr ER, ɜː ER, ɝ ER, ɚ ER, ər ER, ɜ ER, aː AA, a AA, ɐ AH, ɨ IH
""")
IPA_CONSONANTS = _table("""
p P, b B, t T, d D, k K, ɡ G, g G, tʃ CH, t͡ʃ CH, dʒ JH, d͡ʒ JH, f F, v V, θ TH, ð DH, s S, z Z, ʃ SH, ʒ ZH, h HH, m M, n N, ŋ NG
l L, ɫ L, r R, ɹ R, ɾ T, j Y, w W
""")

"""Languages: their names and letters, and which one the sentences of a text seem to be in, by script and by frequent words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from common.errors import shorten

# By ISO 639-1: the language's name, and greetings and frequent words. None is a letter alone, or frequent in English, too.
FREQUENT = {
    "en": ("English", "the of and to is it you that was for are with his they this have from at be not but what were we when"),
    "de": ("German", "der das und ist nicht ich wir ein eine mit auf für von zu den dem wie geht guten tag es sich auch ihnen"),
    "fr": ("French", "le la les et est une des que qui dans pas pour vous nous je il ça où très bonjour merci comment sur en"),
    "es": ("Spanish", "el la los las es una que en por para con está cómo hola buenos días qué muy del gracias estás su se"),
    "it": ("Italian", "il lo la gli è di che una per non con sono come ciao buongiorno grazie della sta questo si del"),
    "pt": ("Portuguese", "os uma que em por para com não está como olá obrigado você muito da bom dia na seu mas"),
    "nl": ("Dutch", "de het een en van ik niet dat voor zijn op goedemorgen hoe gaat je dank aan ook wij naar"),
    "sv": ("Swedish", "och det att en ett är inte jag på med för som den hej hur mår du tack av till var"),
    "da": ("Danish", "og det en et er ikke jeg på med som den hej hvordan går du tak af til"),
    "no": ("Norwegian", "og det å en et er ikke jeg på med som den hei hvordan går du takk av til"),
    "fi": ("Finnish", "ja ei se että hän minä olen hyvää päivää mitä kuuluu kiitos oli mutta tämä niin kuin"),
    "pl": ("Polish", "nie na się jest że jak co dzień dobry dziękuję ja ale po są czy tak"),
    "cs": ("Czech", "je se na že jak ne dobrý den děkuji já ale jsem máte"),
    "hu": ("Hungarian", "az és nem hogy van egy jó napot köszönöm ez vagy mint meg"),
    "ro": ("Romanian", "și de la în este nu că un pe cu bună ziua mulțumesc ce mai din faci"),
    "tr": ("Turkish", "ve bir bu da için ne nasılsınız merhaba çok teşekkür değil mi ben var günaydın"),
    "id": ("Indonesian", "yang dan di ini itu dengan untuk tidak apa kabar selamat pagi saya dari terima kasih"),
    "vi": ("Vietnamese", "là và của có không xin chào tôi bạn một được cho các cảm ơn trong này khỏe"),
    "ru": ("Russian", "и в не на что это как по но из за вы мы он она его для был привет здравствуйте спасибо"),
    "uk": ("Ukrainian", "і в не на що це як та але із за ви ми він вона його для був привіт дякую є"),
    "bg": ("Bulgarian", "и в не на че това как по но от за вие ние той тя го да се съм здравейте благодаря"),
    "el": ("Greek", "και το να η ο της του είναι δεν με για που στο από γεια ευχαριστώ"),
}  # fmt: skip
OWN_SCRIPT = {"ru": "Cyrillic", "uk": "Cyrillic", "bg": "Cyrillic", "el": "Greek"}  # elsewhere in FREQUENT: Latin
CODES = {
    "Chinese": "zh",
    "Japanese": "ja",
    "Korean": "ko",
    "Arabic": "ar",
    "Hebrew": "he",
    "Thai": "th",
    "Devanagari": "hi",
}
# Letters by ISO 639-1, of Latin alphabets those beyond a to z, and in others all of them.
LETTERS = {
    **{"en": "", "id": "", "de": "äöüß", "fr": "àâæçèéêëîïôùûüÿœ", "es": "áéíñóúü", "it": "àèéìîòóùú", "pt": "àáâãçéêíóôõúü"},
    **{"nl": "áéëïóöü", "sv": "åäöé", "da": "æøåé", "no": "æøåéòô", "fi": "äöå", "pl": "ąćęłńóśźż", "cs": "áčďéěíňóřšťúůýž"},
    **{"hu": "áéíóöőúüű", "ro": "ăâîșț", "tr": "âçğıîöşûü", "sk": "áäčďéíĺľňóôŕšťúýž", "hr": "čćđšž", "sl": "čšž"},
    **{"et": "äõöüšž", "lv": "āčēģīķļņšūž", "lt": "ąčęėįšųūž", "ca": "àçèéíïòóúü", "is": "áðéíóúýþæö"},
    **{"ru": "абвгдеёжзийклмнопрстуфхцчшщъыьэюя", "uk": "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя"},
    **{"bg": "абвгдежзийклмнопрстуфхцчшщъьюя", "el": "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ"},
}  # fmt: skip
COMMON_MARKS = "-!'(),.:;?"  # which the embedded voice, the usual warm start, has learned to pause at
MARKS = {"es": "¿¡", "fr": "«»", "ru": "«»", "el": "·"}  # beside those of English
# Scripts by the first word of their letters' names in Unicode.
SCRIPTS = {
    **{name: name.capitalize() for name in ("CYRILLIC", "GREEK", "ARABIC", "HEBREW", "ARMENIAN", "GEORGIAN", "THAI")},
    **{
        name: name.capitalize() for name in ("DEVANAGARI", "BENGALI", "TAMIL", "TELUGU", "KANNADA", "GUJARATI", "KHMER")
    },
    **{"CJK": "Chinese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean", "ETHIOPIC": "Ethiopic"},
}
_SENTENCE = re.compile(r"[^.!?…\n]+(?:[.!?…]+|\n|\Z)")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_WORDS = {code: frozenset(words.split()) for code, (_, words) in FREQUENT.items()}
ENOUGH_WORDS = 4  # of a sentence whose frequent words can be weighed; a shorter one must have nearly no others
SHARE, SHARE_OF_SHORT = 0.2, 0.6  # of a sentence's words
QUOTED = 40  # characters of a sentence in a note


def notes_on_language(text: str, language: str) -> list[str]:
    """List what of a text a voice of a language, by ISO 639-1, reads in vain: a sentence of each other language and script."""
    own = language.split("-")[0].lower()
    script = OWN_SCRIPT.get(own, "")
    speaks = f"this voice speaks {FREQUENT[own][0]}" if own in FREQUENT else f"this voice speaks {language!r}"
    found: dict[str, str] = {}  # sentences, by what they are
    for sentence in (match[0].strip() for match in _SENTENCE.finditer(unicodedata.normalize("NFC", text))):
        if own in FREQUENT and not sentence.isascii() and (other := _script(sentence)) not in ("", script):
            found.setdefault(f"has {other} letters", sentence)
        elif other := _other_language(sentence, own):
            found.setdefault(f"seems to be {FREQUENT[other][0]}", sentence)
    return [f'"{shorten(sentence, QUOTED)}" {what}, but {speaks}' for what, sentence in found.items()]


def name_of(code: str) -> str:
    """Return a language's name and code, "Spanish (es)"; the code alone where the name is not known."""
    return f"{FREQUENT[code][0]} ({code})" if code in FREQUENT else code


def alphabet_of(code: str) -> str:
    """Return the small letters and the marks that texts in a language are written with; "" where they are not known."""
    own = code.replace("_", "-").split("-")[0].lower()
    if own not in LETTERS:
        return ""
    latin = "" if own in OWN_SCRIPT else "abcdefghijklmnopqrstuvwxyz"
    return f"{latin}{LETTERS[own]}{COMMON_MARKS}{MARKS.get(own, '')}"


def other_language(texts: Sequence[str], language: str) -> str:
    """Return the code of the language that texts seem to be in as a whole, if it is another than `language`; else ""."""
    own = language.replace("_", "-").split("-")[0].lower()
    if own not in FREQUENT:  # nothing is known of its words and its script
        return ""
    text = unicodedata.normalize("NFC", " ".join(texts))
    words = [word for word in _WORD.findall(text) if len(word) > 1]
    if not words:
        return ""
    script = Counter(map(_script, words)).most_common(1)[0][0]
    if script == OWN_SCRIPT.get(own, ""):
        other = _other_language(text, own)
        return other if OWN_SCRIPT.get(other, "") == script else ""
    known = {code: sum(word.lower() in _WORDS[code] for word in words) for code in _WORDS}
    written = [code for code in known if OWN_SCRIPT.get(code, "") == script]
    return max(written, key=known.__getitem__) if written else CODES.get(script, "")


def _script(sentence: str) -> str:
    """Name the script of a sentence's first word that no Latin alphabet has; single letters are those of formulas."""
    for word in _WORD.findall(sentence):
        script = SCRIPTS.get(unicodedata.name(word[0], "").split(" ")[0], "")
        if script and (len(word) > 1 or script not in ("Greek", "Cyrillic", "Hebrew")):
            return script
    return ""


def _other_language(sentence: str, own: str) -> str:
    """Return the code of the language that a sentence has many more frequent words of than of its own; "" if there is none."""
    words = [word.lower().replace("’", "'") for word in _WORD.findall(sentence) if len(word) > 1]
    counts = {code: sum(word in frequent for word in words) for code, frequent in _WORDS.items() if code != own}
    best = max(counts, key=counts.__getitem__)
    if counts[best] <= 2 * sum(word in _WORDS.get(own, ()) for word in words):
        return ""
    kinds = len(_WORDS[best].intersection(words))
    if len(words) < ENOUGH_WORDS:
        return best if kinds >= SHARE_OF_SHORT * len(set(words)) else ""
    return best if kinds > 1 and counts[best] >= SHARE * len(words) else ""

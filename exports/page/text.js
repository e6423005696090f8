// English text -> sentences of symbol ids, as tacotron2/text does for simple sentences.
//
// Reads: numbers below 10^9, years, decimals, ordinals, dollars, euros and pounds, times, %, &, the abbreviations of the cleaners,
// and {ARPAbet}. What else the project's reader of English knows is listed by `unread`, for the page to say. Markup and pauses are
// left out. tests/exports/test_web.py compares both front ends.

const SMALL = (
  "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen " +
  "eighteen nineteen"
).split(" ");
const TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split(" ");
const SCALES = [[1e6, "million"], [1e3, "thousand"], [100, "hundred"]];
const ORDINALS = {
  one: "first", two: "second", three: "third", five: "fifth", eight: "eighth", nine: "ninth", twelve: "twelfth",
};

// The order matters, as in tacotron2/text/cleaners.py.
const ABBREVIATIONS = Object.entries({
  mrs: "misess", mr: "mister", dr: "doctor", st: "saint", co: "company", jr: "junior", maj: "major", gen: "general",
  drs: "doctors", rev: "reverend", lt: "lieutenant", hon: "honorable", sgt: "sergeant", capt: "captain", esq: "esquire",
  ltd: "limited", col: "colonel", ft: "fort",
}).map(([short, full]) => [new RegExp(`\\b${short}\\.`, "g"), full]);

// Names of letters, for a sentence of one letter
const LETTERS = (
  "a=ay b=bee c=see d=dee e=ee f=eff g=gee h=aitch i=eye j=jay k=kay l=ell m=em n=en o=oh p=pee q=cue r=are s=ess t=tee u=you " +
  "v=vee w=double-you x=ex y=why z=zee"
);
const NAMES = Object.fromEntries(LETTERS.split(" ").map((entry) => entry.split("=")));

const SIGNS = [
  [/[‘’´]/g, "'"], [/[“”„"]/g, ""], [/…/g, "..."], [/\s*—\s*/g, ", "], [/[–−]/g, "-"], [/\s*&\s*/g, " and "],
  [/ä/g, "ae"], [/ö/g, "oe"], [/ü/g, "ue"], [/ß/g, "ss"], [/æ/g, "ae"], [/ø/g, "o"], [/œ/g, "oe"],
];

const NUMBER = "[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+";
const CURRENCIES = { $: ["dollar", "cent"], "€": ["euro", "cent"], "£": ["pound", "penny"] };
const SCALE_WORDS = { k: "thousand", thousand: "thousand", m: "million", million: "million", bn: "billion", billion: "billion", trillion: "trillion" };
const AMOUNT = `(${NUMBER})(?:\\.([0-9]+))?`;
const SCALE = `(?:\\s?(${Object.keys(SCALE_WORDS).join("|")})(?![a-z0-9]))?`;
const MONEY = new RegExp(`([$€£])${AMOUNT}${SCALE}(\\s(?:bill|note|coin|fee|fine|ticket|price)\\b)?`, "g");
const MONEY_AFTER = new RegExp(`(?<![0-9.,])${AMOUNT}${SCALE}\\s?([€£])`, "g");
const TIME = /(?<![0-9:.])([01]?[0-9]|2[0-3]):([0-5][0-9])(?![0-9:])(?:\s?([ap])\.?m\b(\.(?=\s+[a-z]))?)?|(?<![0-9:.])(1[0-2]|[1-9])\s?([ap])\.?m\b(\.(?=\s+[a-z]))?/g;
const ORDINAL = new RegExp(`(${NUMBER})(?:st|nd|rd|th)\\b`, "g");
const DECIMAL = new RegExp(`(${NUMBER})(?:\\.([0-9]+))?`, "g");

function digits(number) {
  return [...number].map((digit) => SMALL[digit]).join(" ");
}

function nameOf(value) {
  if (value < 20) return SMALL[value];
  if (value < 100) return TENS[Math.floor(value / 10)] + (value % 10 ? `-${SMALL[value % 10]}` : "");
  const [scale, word] = SCALES.find(([size]) => value >= size);
  const rest = value % scale ? ` ${nameOf(value % scale)}` : "";
  return `${nameOf(Math.floor(value / scale))} ${word}${rest}`;
}

function cardinal(number) {
  const plain = number.replaceAll(",", "");
  return plain.length > 9 || /^0./.test(plain) ? digits(plain) : nameOf(Number(plain));
}

function ordinal(number) {
  return cardinal(number).replace(/[a-z]+$/, (word) => ORDINALS[word] ?? word.replace(/y$/, "ie") + "th");
}

function numberOrYear(number) {
  if (!/^(1[1-9]|20)[0-9]{2}$/.test(number) || number.startsWith("200")) return cardinal(number);
  const [century, rest] = [nameOf(Number(number.slice(0, 2))), number.slice(2)];
  if (rest === "00") return `${century} hundred`;
  return rest[0] === "0" ? `${century} oh ${SMALL[rest[1]]}` : `${century} ${nameOf(Number(rest))}`;
}

function money(sign, whole, rest, scale, noun) {
  const [unit, part] = CURRENCIES[sign];
  const decimal = rest ? `${cardinal(whole)} point ${digits(rest)}` : cardinal(whole);
  const plural = (name, word) => `${name} ${name === "one" ? word : word === "penny" ? "pence" : `${word}s`}`;
  if (noun) return `${decimal}${scale ? `-${SCALE_WORDS[scale]}` : ""}-${unit}${noun}`; // a five-dollar bill
  if (scale) return `${decimal} ${SCALE_WORDS[scale]} ${unit}s`;
  if (rest && rest.length !== 2) return `${decimal} ${unit}s`;
  const amounts = [[cardinal(whole), unit], [rest ? nameOf(Number(rest)) : "zero", part]].filter(([name]) => name !== "zero");
  return amounts.map(([name, word]) => plural(name, word)).join(", ") || `zero ${unit}s`;
}

function time(whole, hours, minutes, half, end, hour, halfOfHour, endOfHour) {
  const names = [nameOf(Number(hours ?? hour))];
  const noon = half ?? halfOfHour;
  if (minutes === "00" && !noon) names.push(Number(hours) > 12 || hours === "00" ? "hundred" : "o'clock");
  else if (minutes && minutes !== "00") names.push(minutes[0] === "0" ? `oh ${SMALL[minutes[1]]}` : nameOf(Number(minutes)));
  return [...names, ...(noon ? [noon, "m"] : [])].join(" ");
}

// What the project's reader of English knows and this one does not: what it is, by a pattern.
const UNREAD = [
  ["an address", /\b(?:https?:\/\/|www\.)\S+|\S+@\S+\.\w+/gi],
  ["markup", /<\/?[a-z][^<>]*>|\*\*|^#{1,6}\s|\[[^\[\]]*\](?:\([^)]*\))?|`/gim],
  ["a date", /\b\d{1,4}([-/.])\d{1,2}\1\d{2,4}\b/g],
  ["a fraction", /(?<![\d/])\d+\/\d+(?![\d/])|[½⅓⅔¼¾⅛]/g],
  ["a range", /\b\d+\s?[-–]\s?\d+\b/g],
  ["a sign before a number", /(?<![\w.,)])[-−+±]\d+/g],
  ["a unit", /(?<![$€£\d.,])\d+(?:[.,]\d+)*\s?(?:[kcm]?m[²³]?|[km]?g|m?l|lbs?|oz|ft|in|mph|km\/h|[kMG]?Hz|[kMGT]B|[kM]?W|V|°\s?[CF]?|°)(?![\w])/g],
  ["a currency", /[¥₹₽₩₿¢]\s?[\d.,]*/g],
  ["an initialism", /\b(?:[A-Z]\.){2,}|\b(?![IVXLC]+\b)[A-Z]{2,5}s?\b/g],
  ["a Roman numeral", /(?<=\b[A-Z][a-z]+\s)(?:X{0,3}(?:IX|IV|V?I{1,3}|V|X))\b/g],
  ["letters of another script", /[^\P{L}\p{Script=Latin}]+/gu],
  ["a sign without a sound", /[^\p{L}\p{M}\p{N}\s\p{P}$€£%&+=~^\u00b4-]/gu],
];

/** What of a text is not read as it is meant: [what it is, the place in the text] by the first pattern that fits. */
export function unread(text) {
  const found = [];
  let rest = text.replace(/\{[^{}]*\}/g, " ");
  const isShouting = /[A-Z]/.test(rest) && !/[a-z]/.test(rest);
  for (const [kind, pattern] of UNREAD) {
    if (isShouting && kind === "an initialism") continue;
    rest = rest.replace(pattern, (part) => (found.push([kind, part.trim()]), " "));
  }
  return found;
}

/** Written to spoken text in lower case and ASCII. */
export function clean(text) {
  text = text.normalize("NFC").toLowerCase();
  for (const [sign, replacement] of SIGNS) text = text.replace(sign, replacement);
  text = text.normalize("NFD").replace(/[\u0300-\u036f]/g, "");
  text = text.replace(MONEY, (_, sign, whole, rest, scale, noun) => money(sign, whole, rest, scale, noun));
  text = text.replace(MONEY_AFTER, (_, whole, rest, scale, sign) => money(sign, whole, rest, scale));
  text = text.replace(TIME, time);
  text = text.replace(ORDINAL, (_, number) => ordinal(number));
  text = text.replace(DECIMAL, (_, whole, rest) => (rest ? `${cardinal(whole)} point ${digits(rest)}` : numberOrYear(whole)));
  text = text.replace(/\s*%/g, " percent");
  for (const [short, full] of ABBREVIATIONS) text = text.replace(short, full);
  return text.replace(/\s+/g, " ");
}

function idsOf(text, ids) {
  return text.split(/(\{[^{}]*\})/).flatMap((part) => {
    if (!part.startsWith("{")) return [...part].filter((symbol) => ids.has(symbol)).map((symbol) => ids.get(symbol));
    return part.slice(1, -1).trim().split(/\s+/).map((phone) => {
      if (!ids.has(`@${phone}`)) throw new Error(`${part}: this voice has no ARPAbet symbol “${phone}”.`);
      return ids.get(`@${phone}`);
    });
  });
}

/** A text -> one array of symbol ids a sentence; sentences without a letter are left out. Throws for unknown ARPAbet. */
export function sentences(text, symbols) {
  const ids = new Map(symbols.map((symbol, id) => [symbol, id]));
  const spoken = text.trim().split(/(\{[^{}]*\})/).map((part) => (part.startsWith("{") ? part : clean(part))).join("");
  // three points and a point after a single letter, as in "p.m.", end no sentence
  const parts = spoken.split(/(?<=[A-Za-z0-9'})][a-z'})](?:\.|[!?]+))\s+/);
  const named = parts.map((part) => part.replace(/^([^a-z0-9{]*)([a-z])([^a-z0-9{]*)$/, (_, before, letter, after) => before + NAMES[letter] + (after || ".")));
  return named.filter((part) => /[a-z{]/.test(part)).map((part) => idsOf(part, ids));
}

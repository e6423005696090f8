"""Which words in capitals are initials, read letter by letter: FBI, NYC and OECD, but not NATO and STOP."""

from __future__ import annotations

import re

from tacotron2.text.reading.patterns import any_of
from tacotron2.text.reading.tables import words

# Read letter by letter, though they look like words. Those without a vowel need no entry, nor those of two or three letters
# that are no word, nor those that nobody can pronounce, such as OECD.
SPELLED_WORDS = frozenset(
    words("""
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
    words("""
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
PRONOUNCED = frozenset(words("JSON JPEG MPEG YAML ONNX NVIDIA SCSI CRISPR AWOL NSYNC SQRT"))
ONSETS = words(
    """
bh bj bl br ch chr cl cr cz dh dr dw fl fr gh gl gn gr gw hl hr kh kl kn kr kv kw ll pf pfl ph pl pr ps rh sc sch schl schm schn
schr schw scr sh shr sk sl sm sn sp sph spl spr sq squ sr st str sv sw th thr thw tr ts tw vl wh wr zh phr
""".upper()
)
CODAS = words(
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
ALSO_WORDS = frozenset(words("US AM AD ID LA PA OR IT WHO LED SEC"))
NO_INITIALS = "MR|MRS|MS|DR|ST|MT|JR|SR|FT|LT|NTH|PSST|TSK|PFFT|S?HM+|SHH*|[BG]RR+|MM+|ZZ+"

_PRONOUNCEABLE = re.compile(rf"(?:[^AEIOUY]|{any_of(ONSETS)})?[AEIOUY](?:.*[AEIOUY])?(?:[^AEIOUY]|{any_of(CODAS)})?")


def is_spelled(word: str) -> bool:
    """True for initials that are read letter by letter: NYC and OECD, but not NATO and STOP."""
    if word in SPELLED_WORDS:
        return True
    if len(word) < 4:
        return word not in SHORT_WORDS and not re.fullmatch(NO_INITIALS, word)
    return len(word) < 7 and word not in PRONOUNCED and not _PRONOUNCEABLE.fullmatch(word)

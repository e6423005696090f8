"""The symbol table against the order that published checkpoints' embeddings follow, written out by hand."""

from tacotron2.text import BUILT_IN, Alphabet, alphabet_of, symbols

ARPABET = (
    "AA AA0 AA1 AA2 AE AE0 AE1 AE2 AH AH0 AH1 AH2 AO AO0 AO1 AO2 AW AW0 AW1 AW2 AY AY0 AY1 AY2 B CH D DH "
    "EH EH0 EH1 EH2 ER ER0 ER1 ER2 EY EY0 EY1 EY2 F G HH IH IH0 IH1 IH2 IY IY0 IY1 IY2 JH K L M N NG "
    "OW OW0 OW1 OW2 OY OY0 OY1 OY2 P R S SH T TH UH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH"
)


def test_the_built_in_alphabet_is_the_published_table_and_others_have_their_own_ids() -> None:
    assert "".join(symbols[:64]) == "_-!'(),.:;? ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert symbols[64:] == ["@" + phone for phone in ARPABET.split(" ")]
    assert len(symbols) == len(set(symbols)) == 148
    assert alphabet_of(None) is BUILT_IN
    assert list(BUILT_IN.symbols) == symbols
    assert "".join(BUILT_IN.character_ids) == "".join(symbols[:64])
    assert list(BUILT_IN.phone_ids) == ARPABET.split(" ")
    ids = [*BUILT_IN.character_ids.values(), *BUILT_IN.phone_ids.values()]
    assert ids == list(range(148))
    alphabet = alphabet_of(["#", "@B", "ж", "@", "@AA1", " "])
    assert alphabet == Alphabet(("#", "@B", "ж", "@", "@AA1", " "))
    assert alphabet.character_ids == {"#": 0, "ж": 2, "@": 3, " ": 5}
    assert alphabet.phone_ids == {"B": 1, "AA1": 4}
    assert alphabet_of(["_", "@"]).phone_ids == {}

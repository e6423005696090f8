"""docs/samples.html: every sound of audio/ once, links to files that exist, and no markup from texts."""

import re
from html.parser import HTMLParser
from pathlib import Path

from scripts.samples_page import PAGE, page
from tests.recipe import ROOT


class Sounds(HTMLParser):
    """The addresses of a page's players, and its headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.sources += [value for name, value in attributes if name == "src" and value]


def test_it_plays_every_sound_of_the_folder_and_the_recordings() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert text == page(ROOT), "run `make docs`"
    paths = [(ROOT / "docs" / source).resolve() for source in Sounds(text).sources]
    assert all(path.is_file() for path in paths) and len(set(paths)) == len(paths)
    assert set((ROOT / "audio").rglob("*.wav")) <= set(paths)
    recorded = {path for path in paths if "corpus" in path.parts}
    phrases = (ROOT / "audio/phrases.txt").read_text(encoding="utf-8").splitlines()
    held_out = (ROOT / "filelists/sentences_audio_text_val_filelist.txt").read_text(encoding="utf-8")
    assert len(recorded) == sum(f"|{phrase}\n" in held_out for phrase in phrases) > 0
    assert len(text) < 20_000 and "http" not in text and not {"script", "img"} & Sounds(text).tags


def test_texts_are_no_markup_and_folders_have_their_flags(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "audio" / name).mkdir(parents=True)
        (tmp_path / "audio" / name / "audio_0.wav").touch()
    (tmp_path / "filelists").mkdir()
    (tmp_path / "filelists/sentences_audio_text_val_filelist.txt").write_text("c.ogg|Not spoken either.\n")
    (tmp_path / "audio/phrases.txt").write_text("Tom <script> & co.\nNot spoken.\n")
    command = "    python inference.py -i audio/phrases.txt -o audio/a --seed 0 --cpu --vocoder waveglow\n"
    (tmp_path / "audio/README.md").write_text(command)
    text = page(tmp_path)
    assert "Tom &lt;script&gt; &amp; co." in text and "script" not in Sounds(text).tags
    assert re.findall(r"<figcaption>(\w) <code>(.*?)</code>", text) == [("a", "--vocoder waveglow"), ("b", "")]
    assert Sounds(text).sources == ["../audio/a/audio_0.wav", "../audio/b/audio_0.wav"]

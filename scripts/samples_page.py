"""Write docs/samples.html, which plays the sounds in audio/ side by side: python -m scripts.samples_page.

Each line of audio/phrases.txt has its recording, where the corpus has one, and the sound of each folder of audio/, with the flags
that audio/README.md makes it with. Sounds are linked, not embedded.
"""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path

from common.data.filelist import read_filelist
from common.errors import exit_on_user_error
from common.files import read_lines, write_text
from common.parser import Parser

AUDIO, PAGE = Path("audio"), Path("docs/samples.html")
RECORDED = Path("filelists/sentences_audio_text_val_filelist.txt")
HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Samples of the embedded voice</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; color-scheme: light dark }
section { border-top: 1px solid #888; margin-top: 1.5em }
div { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 1em }
figure { margin: 0 } audio { width: 100% } code { font-size: 12px }
</style>
<h1>Samples of the embedded voice</h1>
<p>Sentences that were not in training, from text to sound with the flags shown. The voice and its recordings are synthetic.</p>"""


def main() -> None:
    """Write the page."""
    Parser(prog="python -m scripts.samples_page", description=__doc__).parse_args()
    write_text(PAGE, page(Path()))
    print(PAGE)


def page(root: Path) -> str:
    """Render the page of the sounds below a project's folder. Raises DataError if the phrases cannot be read."""
    phrases = read_lines(root / AUDIO / "phrases.txt")
    folders = sorted({path.parent for path in (root / AUDIO).glob("*/audio_*.*")})
    flags = flags_of((root / AUDIO / "README.md").read_text(encoding="utf-8"))
    recordings = {row.text: root / row.path for row in read_filelist(root / RECORDED)}
    sections = []
    for number, phrase in enumerate(phrases):
        sounds = [("recording", "", recordings[phrase])] if phrase in recordings else []
        for folder in folders:
            found = sorted(folder.glob(f"audio_{number}.*"))
            sounds += [(folder.name, flags.get(folder.name, ""), path) for path in found[:1]]
        players = "\n".join(
            player(title, words, os.path.relpath(path, (root / PAGE).parent)) for title, words, path in sounds
        )
        sections.append(f"<section>\n<h2>{escape(phrase)}</h2>\n<div>\n{players}\n</div>\n</section>")
    return "\n".join([HEAD, *sections, "</html>\n"])


def player(title: str, words: str, link: str) -> str:
    """Format one sound: its title, the flags that made it, and a player of a file beside the page."""
    caption = f"<figcaption>{escape(title)} <code>{escape(words)}</code></figcaption>"
    return f'<figure>{caption}<audio controls preload="none" src="{escape(link)}"></audio></figure>'


def flags_of(readme: str) -> dict[str, str]:
    """Find the commands that write a folder of audio/ each: the folder's name and the command's other flags."""
    commands = re.findall(r"python inference\.py (.*) -o audio/([\w-]+)/?(.*)", readme)
    return {
        name: re.sub(r"-i \S+|--seed \d+|--cpu", "", f"{before} {after}").strip() for before, name, after in commands
    }


if __name__ == "__main__":
    with exit_on_user_error():
        main()

"""Run a command of the recipe: tts [COMMAND] [flags], or python -m tacotron2_waveglow.

tts "Good morning."                         # writes output/audio_0.wav
tts inference -i phrases.txt -o spoken      # python inference.py in a clone; train, evaluate and multiproc likewise
tts serving --port 8000                     # python -m serving; studio.prepare, exports and the others likewise
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib import import_module

from tacotron2_waveglow import HOME

SCRIPTS = ("train", "inference", "evaluate", "multiproc")
ROOMS = ("serving", "studio", "exports", "common", "scripts")


def main() -> None:
    """Run the command in this process, which imports the recipe's modules by their own names, as in a clone."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print((__doc__ or "").strip())
        return
    if words[0] == "--version":
        print(import_module("tacotron2_waveglow.common").__version__)
        return
    name = words[0].removesuffix(".py")
    if name in SCRIPTS or name.partition(".")[0] in ROOMS:
        words.pop(0)
    else:
        name = "inference"
        words = words if words[0].startswith("-") else ["--text", *words]
    if name == "multiproc":  # its script is one of these
        words = [str(HOME / word) if word.removesuffix(".py") in SCRIPTS else word for word in words]
    sys.path.insert(0, str(HOME))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH"))))
    sys.argv[1:] = words
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

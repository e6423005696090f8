"""Answer spoken questions by speech: python -m serving.conversation question.wav -o answer.wav

python -m serving.conversation first.wav second.wav -o answer.wav      # answer_0.wav, then answer_1.wav, which may follow up
python -m serving.conversation question.wav -o answer.wav --knowledge my_answers.txt
python -m serving.conversation question.wav -o answer.wav --chat-url http://127.0.0.1:11434/v1 --chat-model MODEL

The recogniser of evaluate.py (`bash scripts/evaluation.sh` installs it) transcribes the question. The answer comes from a text file
or a chat model behind any OpenAI-compatible endpoint. Voices are chosen as for inference.py.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common import precision
from common.arguments import given_options
from common.audio.audio_processing import FORMATS, read_audio, save_audio
from common.audio.silence import without_offset
from common.errors import UsageError, exit_on_user_error
from common.inference.arguments import add_speaking_arguments, named_checkpoints, synthesis_config
from common.inference.outputs import Live
from common.inference.stages import TEXT_PAUSE, acoustic_stages
from common.options import from_options
from common.parser import Parser
from common.quality.recogniser import Recogniser
from models import REGISTRY
from serving.answers import Answerer, ChatEndpoint, Knowledge, Turn
from serving.arguments import add_conversation_arguments
from serving.config import CHAT_KEY_VARIABLE, ConversationConfig
from serving.sentences import SentenceCutter, SentenceEnds
from synthesizer import Line, SynthesisConfig, Synthesizer, choose_checkpoints

# N samples

SPECS = REGISTRY.values()
FAINTEST = 0.005  # recordings that peak below this count as silent; the recogniser finds words even in silence
NO_WORDS = "I could not find any words in that. Please say it again."


class Conversation:
    """A recogniser and a source of answers. The caller keeps the turns, so several users can share a conversation."""

    def __init__(self, config: ConversationConfig | None = None) -> None:
        """Load the recogniser and the answers. Raises DataError if a package or a file is missing or cannot be read."""
        self.config = config or ConversationConfig()
        self.recogniser = Recogniser(self.config.recogniser, self.config.recogniser_dir)
        self.answerer = make_answerer(self.config)

    def transcribe(self, audio: np.ndarray, rate: int) -> str:
        """Return the words in audio (N,) in [-1, 1] at `rate` Hz, or "" if there are none."""
        return self.recogniser(audio, rate) if np.abs(without_offset(audio)).max(initial=0.0) > FAINTEST else ""

    def answer(self, question: str, turns: list[Turn], sentence_ends: SentenceEnds) -> Iterator[str]:
        """Yield the answer to a question, sentence by sentence, and add both to `turns`.

        A question without words gets a fixed answer and leaves the turns unchanged, as does an Answerer's DataError.
        """
        if not question:
            yield NO_WORDS
            return
        recent = turns[max(0, len(turns) - self.config.remembered_turns) :]
        cutter, pieces = SentenceCutter(sentence_ends), []
        for piece in self.answerer(question, recent):
            pieces.append(piece)
            yield from cutter.add(piece)
        yield from cutter.finish()
        turns.append(Turn(question, "".join(pieces).strip()))


def make_answerer(config: ConversationConfig) -> Answerer:
    """Build the source of answers that a config names. Raises DataError as Knowledge does."""
    if config.chat_url is None or config.chat_model is None:
        return Knowledge(config.knowledge)
    key = os.environ.get(CHAT_KEY_VARIABLE)
    return ChatEndpoint(config.chat_url, config.chat_model, key, config.chat_instructions, config.chat_timeout)


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options of the command: recordings of questions, the sound file of the answer, and a pipe or file for samples."""

    questions: list[Path]
    output: Path
    stream: Path | None
    cpu: bool
    checkpoints: dict[str, Path]  # named by flags
    speaking: SynthesisConfig
    conversation: ConversationConfig

    def outputs(self) -> list[Path]:
        """Return the file of each answer: --output itself for one question, otherwise NAME_I with I from 0."""
        path, count = self.output, len(self.questions)
        return [path] if count == 1 else [path.with_name(f"{path.stem}_{i}{path.suffix}") for i in range(count)]


def main(argv: list[str] | None = None) -> None:
    """Load everything, then answer one question after another."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    questions = [read_audio(path, None) for path in options.questions]
    device = precision.pick_device(cpu=options.cpu)
    conversation = Conversation(options.conversation)
    choice = choose_checkpoints(options.checkpoints, options.speaking.vocoder)
    voice = Synthesizer.from_choice(choice, config=options.speaking, device=device)
    print(f"voice: {voice.description}", flush=True)
    turns: list[Turn] = []
    opened: AbstractContextManager[Live | None] = Live(options.stream) if options.stream else nullcontext()
    with opened as live:
        for question, path in zip(questions, options.outputs(), strict=True):
            text = conversation.transcribe(question.samples.numpy(), question.rate)
            print(f"question: {text or '(no words)'}", flush=True)
            sentences = conversation.answer(text, turns, acoustic_stages(voice.acoustic).sentence_ends)
            audio = speak(sentences, voice, live)
            save_audio(path, audio, voice.audio.sampling_rate)
            print(f"{path}  {len(audio) / voice.audio.sampling_rate:.2f} s", flush=True)


def speak(sentences: Iterator[str], voice: Synthesizer, live: Live | None = None) -> Tensor:
    """Speak the sentences of an answer as they arrive, into `live` while they are computed; return the audio (N,)."""
    seed = voice.config.seed
    if seed is None:
        seed = precision.draw_seed()
    parts = [torch.zeros(0)]
    for number, sentence in enumerate(sentences):
        print(f"answer: {sentence}", flush=True)
        if not voice.has_words(sentence):
            continue
        for part in voice.stream_line(Line(sentence, seed, number), TEXT_PAUSE):
            parts.append(part)
            if live:
                live(part)
    return torch.cat(parts)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all flags."""
    parser = Parser(
        prog="python -m serving.conversation",
        usage="%(prog)s QUESTION … -o FILE [flags]  (-h lists all flags)",
        description=__doc__,
    )
    add = parser.add_argument
    recordings = "recordings of questions, in order: wav, flac, ogg, mp3"
    add("questions", type=Path, nargs="+", metavar="QUESTION", help=recordings)
    add("-o", "--output", type=Path, required=True, help="sound file of the answer: .wav, .flac or .ogg")
    pipe = "pipe or file that receives the answers as raw 16-bit samples while they are computed"
    add("--stream", type=Path, metavar="PATH", help=pipe)
    add_conversation_arguments(parser)
    add_speaking_arguments(parser, SPECS)
    return parser


def parse_args(argv: list[str]) -> AnswerOptions:
    """Parse all flags. Raises UsageError for values out of range."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.output.suffix.removeprefix(".") not in FORMATS:
        raise UsageError(f"-o {args.output}: expected a name that ends in {', '.join(f'.{name}' for name in FORMATS)}")
    return AnswerOptions(
        questions=args.questions,
        output=args.output,
        stream=args.stream,
        cpu=args.cpu,
        checkpoints=named_checkpoints(args, SPECS),
        speaking=synthesis_config(args, given_options(parser, argv), SPECS),
        conversation=from_options(ConversationConfig, vars(args)),
    )


if __name__ == "__main__":
    with exit_on_user_error():
        main()

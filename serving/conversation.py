"""Answer spoken questions by speech.

python -m serving.conversation question.wav -o answer.wav
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

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common import precision
from common.audio.audio_processing import FORMATS, read_audio, save_audio
from common.audio.silence import without_offset
from common.errors import UsageError, exit_on_user_error
from common.inference.arguments import SpeakingOptions, add_speaking_arguments, speaking_options
from common.inference.outputs import Live
from common.inference.stages import TEXT_PAUSE, acoustic_stages
from common.options import ABOVE_ZERO, NOT_NEGATIVE, Check, add_fields, option, problems_of, section
from common.parser import Parser
from common.quality.recogniser import RecogniserConfig
from models import REGISTRY
from serving.answers import Answerer, ChatEndpoint, Knowledge, Turn
from serving.sentences import SentenceEnds, cut_sentences
from synthesizer import Line, Synthesizer, choose_checkpoints

# N samples

SPECS = REGISTRY.values()
CHAT_KEY_VARIABLE = "CHAT_API_KEY"  # of the environment
KNOWLEDGE = Path(__file__).with_name("knowledge.txt")
INSTRUCTIONS = (
    "Your answers are spoken. Give one to three short sentences of plain English, without lists, links or markup."
)
FAINTEST = 0.005  # recordings that peak below this count as silent; the recogniser finds words even in silence
NO_WORDS = "I could not find any words in that. Please say it again."
ADDRESS = Check(lambda url: url.startswith(("http://", "https://")), "http://… or https://…")
SOUND = Check(
    lambda path: path.suffix.removeprefix(".") in FORMATS,
    f"a name that ends in {', '.join(f'.{name}' for name in FORMATS)}",
)


@dataclass(frozen=True, kw_only=True)
class ConversationOptions(SpeakingOptions):
    """Options of a conversation. Raises UsageError that names the flags of every problem."""

    questions: tuple[Path, ...] = ()  # recordings
    output: Path = option(
        Path("answer.wav"), "sound file of the answer: .wav, .flac or .ogg", "-o", check=SOUND, required=True
    )
    stream: Path | None = option(
        None, "pipe or file that receives the answers as raw 16-bit samples while they are computed", metavar="PATH"
    )
    knowledge: Path = option(KNOWLEDGE, "text file of answers, one `question|answer` per line")
    chat_url: str | None = option(
        None,
        "OpenAI-compatible endpoint to take answers from instead, such as http://127.0.0.1:11434/v1; its key, if it needs "
        f"one, is read from the environment variable {CHAT_KEY_VARIABLE}",
        check=ADDRESS,
        metavar="URL",
    )
    chat_model: str | None = option(None, "model of the chat endpoint", metavar="NAME")
    chat_instructions: str = option(INSTRUCTIONS, "system message for the chat model")
    chat_timeout: float = option(60.0, "seconds that the chat endpoint may stay silent", check=ABOVE_ZERO)
    remembered_turns: int = option(
        10, "most recent questions and answers that an answer may refer to", check=NOT_NEGATIVE, metavar="N"
    )
    hearing: RecogniserConfig = section(RecogniserConfig)

    def __post_init__(self) -> None:
        problems = problems_of(self)
        if (self.chat_url is None) != (self.chat_model is None):
            problems.append("--chat-url and --chat-model: one is missing, expected both or none")
        if problems:
            raise UsageError("\n".join(problems))

    def answerer(self) -> Answerer:
        """Build the source of answers. Raises DataError as Knowledge does."""
        if self.chat_url is None or self.chat_model is None:
            return Knowledge(self.knowledge)
        key = os.environ.get(CHAT_KEY_VARIABLE)
        return ChatEndpoint(self.chat_url, self.chat_model, key, self.chat_instructions, self.chat_timeout)


def main(argv: list[str] | None = None) -> None:
    """Load everything, then answer one question after another: -o itself for one question, otherwise NAME_I with I from 0."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    recordings = [read_audio(path, None) for path in options.questions]
    recogniser, answerer = options.hearing.load(), options.answerer()
    choice = choose_checkpoints(options.checkpoints(SPECS), options.config.vocoder)
    device = precision.pick_device(cpu=options.cpu)
    voice = Synthesizer.from_choice(choice, config=options.config, device=device)
    print(f"voice: {voice.description}", flush=True)
    ends = acoustic_stages(voice.acoustic).sentence_ends
    turns: list[Turn] = []
    with Live(options.stream) if options.stream else nullcontext() as live:
        for number, recording in enumerate(recordings):
            question = transcribe(recogniser, recording.samples.numpy(), recording.rate)
            print(f"question: {question or '(no words)'}", flush=True)
            audio = speak(answer(question, answerer, turns, options.remembered_turns, ends), voice, live)
            path = options.output
            path = path if len(recordings) == 1 else path.with_name(f"{path.stem}_{number}{path.suffix}")
            save_audio(path, audio, voice.audio.sampling_rate)
            print(f"{path}  {len(audio) / voice.audio.sampling_rate:.2f} s", flush=True)


def transcribe(recogniser: Callable[[np.ndarray, int], str], audio: np.ndarray, rate: int) -> str:
    """Return the words in audio (N,) in [-1, 1] at `rate` Hz, or "" if there are none."""
    return recogniser(audio, rate) if np.abs(without_offset(audio)).max(initial=0.0) > FAINTEST else ""


def answer(
    question: str, answerer: Answerer, turns: list[Turn], remembered: int, sentence_ends: SentenceEnds
) -> Iterator[str]:
    """Yield the answer to a question, sentence by sentence, and add both to `turns`, of which it sees the last `remembered`.

    A question without words gets a fixed answer and leaves the turns unchanged, as does an answerer's DataError.
    """
    if not question:
        yield NO_WORDS
        return
    pieces: list[str] = []

    def kept() -> Iterator[str]:
        for piece in answerer(question, turns[max(0, len(turns) - remembered) :]):
            pieces.append(piece)
            yield piece

    yield from cut_sentences(kept(), sentence_ends)
    turns.append(Turn(question, "".join(pieces).strip()))


def speak(sentences: Iterator[str], voice: Synthesizer, live: Live | None = None) -> Tensor:
    """Speak the sentences of an answer as they arrive, into `live` while they are computed; return the audio (N,)."""
    seed = precision.draw_seed() if voice.config.seed is None else voice.config.seed
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


def parse_args(argv: list[str]) -> ConversationOptions:
    """Parse all flags. Raises UsageError for values out of range."""
    parser = Parser(
        prog="python -m serving.conversation",
        usage="%(prog)s QUESTION … -o FILE [flags]  (-h lists all flags)",
        description=__doc__,
    )
    help_of_questions = "recordings of questions, in order: wav, flac, ogg, mp3"
    parser.add_argument("questions", type=Path, nargs="+", metavar="QUESTION", help=help_of_questions)
    add_fields(parser, ConversationOptions, "output", "stream", output=None)
    names = [name for name in ConversationOptions.__annotations__ if name not in ("questions", "output", "stream")]
    add_fields(parser.add_argument_group("conversation"), ConversationOptions, *names)
    add_speaking_arguments(parser, SPECS)
    return speaking_options(ConversationOptions, parser, argv, SPECS)


if __name__ == "__main__":
    with exit_on_user_error():
        main()

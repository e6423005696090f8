"""A conversation from sound files to sound files: the recogniser confirms the words of the answers."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from common.audio.audio_processing import read_audio
from serving.answers import Turn
from serving.conversation import NO_WORDS, answer, main, transcribe
from synthesizer import SynthesisConfig, Synthesizer
from tacotron2.text.markup import ended_sentences as sentence_ends
from tests.recipe import assert_spoken, skip_without_evaluators
from tests.serving.conftest import chunk


@pytest.fixture(scope="module")
def questions(tmp_path_factory) -> list[Path]:
    """Questions that the embedded voice speaks: one at 44,100 Hz in stereo, one at 8,000 Hz."""
    skip_without_evaluators()
    folder = tmp_path_factory.mktemp("questions")
    voice = Synthesizer.embedded(config=SynthesisConfig(seed=2))
    spoken = [speech.audio.numpy() for speech in voice.speak(["How many days are in a week?", "And in a year?"])]
    paths = [folder / f"{name}.wav" for name in ("week", "year")]
    soundfile.write(paths[0], np.stack([resample_poly(spoken[0], 2, 1)] * 2, axis=1), 44100)
    soundfile.write(paths[1], resample_poly(spoken[1], 160, 441), 8000)
    return paths


def assert_says(path: Path, text: str) -> None:
    audio = read_audio(path, None)
    assert_spoken(text, audio.samples.numpy(), audio.rate)


@pytest.mark.slow
def test_a_question_is_answered_by_speech(questions, tmp_path, capsys):
    answer, pipe = tmp_path / "answer.wav", tmp_path / "answer.pcm"
    main([str(questions[0]), "-o", str(answer), "--stream", str(pipe), "--seed", "1"])
    assert_says(answer, "There are seven days in a week.")
    output = capsys.readouterr().out
    assert "question: How many days are in a week" in output and "answer: There are seven days in a week." in output
    streamed = np.frombuffer(pipe.read_bytes(), "<i2")
    np.testing.assert_array_equal(streamed, soundfile.read(answer, dtype="int16")[0])


@pytest.mark.slow
def test_a_chat_model_answers_by_speech(questions, endpoint, tmp_path):
    endpoint.events = [chunk("There are seven days in a week. A dog"), chunk(" has four legs."), "data: [DONE]\n\n"]
    flags = ["--chat-url", endpoint.url, "--chat-model", "parrot", "--seed", "1"]
    main([*map(str, questions[:2]), "-o", str(tmp_path / "answer.wav"), *flags])
    answer = "There are seven days in a week. A dog has four legs."
    assert_says(tmp_path / "answer_1.wav", answer)
    contents = [message["content"] for message in endpoint.requests[1][2]["messages"]]
    assert contents[1:3] == ["How many days are in a week?", answer] and "year" in contents[3]


def test_silence_has_no_words() -> None:
    def recogniser(audio: np.ndarray, rate: int) -> str:
        return "you"

    noise = np.random.default_rng(0).uniform(-1, 1, 22050).astype(np.float32)
    assert [transcribe(recogniser, audio, 22050) for audio in (0.0049 * noise, noise[:0], noise)] == ["", "", "you"]


@pytest.mark.parametrize("remembered", [0, 2, 5])
def test_the_latest_turns_alone_are_passed_on(remembered: int) -> None:
    seen, turns = list[Turn](), [Turn("One", "A."), Turn("Two", "B."), Turn("Three", "C.")]

    def echo(question: str, earlier: Sequence[Turn]) -> Iterator[str]:
        seen.extend(earlier)
        yield from (" You said: ", question, ".\n")

    assert list(answer("", echo, turns, remembered, sentence_ends)) == [NO_WORDS] and len(turns) == 3
    assert list(answer("Four", echo, turns, remembered, sentence_ends)) == ["You said: Four."]
    assert seen == turns[:3][3 - min(3, remembered) :] and turns[3:] == [Turn("Four", "You said: Four.")]

"""A conversation from sound files to sound files: the recogniser confirms the words of the answers."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from common.audio.audio_processing import read_audio
from common.errors import DataError, UsageError
from common.quality.recogniser import Recogniser
from common.quality.words import normalise
from serving.answers import Turn
from serving.conversation import NO_WORDS, Conversation, main
from synthesizer import SynthesisConfig, Synthesizer
from tacotron2.text.sentences import sentence_ends
from tests.recipe import ROOT, run, skip_without_evaluators
from tests.serving.chat_endpoint import Endpoint, chunk

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    skip_without_evaluators()
    return Recogniser()


@pytest.fixture(scope="module")
def questions(tmp_path_factory) -> list[Path]:
    """Questions that the embedded voice speaks: one at 44,100 Hz in stereo, one at 8,000 Hz, and a second of silence."""
    folder = tmp_path_factory.mktemp("questions")
    voice = Synthesizer.embedded(config=SynthesisConfig(seed=2))
    spoken = [speech.audio.numpy() for speech in voice.speak(["How many days are in a week?", "And in a year?"])]
    paths = [folder / f"{name}.wav" for name in ("week", "year", "silence")]
    soundfile.write(paths[0], np.stack([resample_poly(spoken[0], 2, 1)] * 2, axis=1), 44100)
    soundfile.write(paths[1], resample_poly(spoken[1], 160, 441), 8000)
    soundfile.write(paths[2], np.zeros(22050), 22050)
    return paths


def words_in(path: Path, recogniser: Recogniser) -> str:
    audio = read_audio(path, None)
    return normalise(recogniser(audio.samples.numpy(), audio.rate))


def test_a_question_is_answered_by_speech(questions, recogniser, tmp_path, capsys):
    answer, pipe = tmp_path / "answer.wav", tmp_path / "answer.pcm"
    main([str(questions[0]), "-o", str(answer), "--stream", str(pipe), "--seed", "1"])
    assert words_in(answer, recogniser) == "there are seven days in a week"
    output = capsys.readouterr().out
    assert "question: How many days are in a week" in output and "answer: There are seven days in a week." in output
    streamed = np.frombuffer(pipe.read_bytes(), "<i2")
    np.testing.assert_array_equal(streamed, soundfile.read(answer, dtype="int16")[0])


def test_questions_in_turn_share_their_context(questions, recogniser, tmp_path):
    main([*map(str, questions), "-o", str(tmp_path / "answer.flac"), "--seed", "1"])
    outputs = [words_in(tmp_path / f"answer_{i}.flac", recogniser) for i in range(3)]
    assert outputs[0] == "there are seven days in a week"
    assert "sixty five days in a year" in outputs[1]
    assert "say it again" in outputs[2]


def test_a_chat_model_answers_by_speech(questions, recogniser, tmp_path):
    with Endpoint() as endpoint:
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        endpoint.events = [chunk("There are seven days in a week. A dog"), chunk(" has four legs."), "data: [DONE]\n\n"]
        output = tmp_path / "answer.wav"
        flags = ["--chat-url", endpoint.url, "--chat-model", "parrot", "--seed", "1"]
        main([*map(str, questions[:2]), "-o", str(output), *flags])
        endpoint.shutdown()
    assert words_in(tmp_path / "answer_1.wav", recogniser) == "there are seven days in a week a dog has four legs"
    contents = [message["content"] for message in endpoint.requests[1][2]["messages"]]
    answer = "There are seven days in a week. A dog has four legs."
    assert contents[1:3] == ["How many days are in a week?", answer] and len(contents) == 4


def test_a_question_without_words_leaves_the_turns(recogniser):
    turns = [Turn("Hello.", "Good morning.")]
    assert list(Conversation().answer("", turns, sentence_ends)) == [NO_WORDS] and len(turns) == 1


def test_mistakes_are_one_error_without_a_traceback(questions, tmp_path):
    answer = tmp_path / "answer.wav"
    with pytest.raises(DataError, match=r"missing\.wav: no such audio file"):
        main([str(tmp_path / "missing.wav"), "-o", str(answer)])
    with pytest.raises(UsageError, match=r"-o answer\.mid: expected a name that ends in \.wav, \.flac, \.ogg"):
        main([str(questions[0]), "-o", "answer.mid"])
    result = run("serving/conversation.py", questions[0], "-o", answer, "--chat-model", "parrot")
    assert (result.code, result.err) == (
        2,
        "error: --chat-url and --chat-model: one is missing, expected both or none\n",
    )
    assert not answer.exists() and ROOT.exists()

"""Answers from a text file: which entry fits a question, as a recogniser may write it, and which questions have none."""

import pytest

from common.errors import DataError
from serving.answers import NO_ANSWER, NO_REPEAT, Knowledge, Turn, read_entries
from serving.conversation import KNOWLEDGE

pytest.importorskip("rapidfuzz", reason="rapidfuzz, of requirements/eval.txt, is not installed")


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge(KNOWLEDGE)


def ask(knowledge: Knowledge, question: str, *turns: Turn) -> str:
    (answer,) = knowledge(question, turns)
    return answer


def test_each_question_of_the_file_has_its_own_answer(knowledge):
    entries = read_entries(KNOWLEDGE)
    assert len(entries) > 30
    assert {question: ask(knowledge, question) for question in entries} == entries


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("could you please tell me how many days there are in a week", "There are seven days in a week."),
        ("How many minutes are in an our?", "There are sixty minutes in an hour."),
        ("what color is the sky", "On a clear day the sky is blue."),
        ("HOW MANY LEGS DOES A SPIDER HAVE", "A spider has eight legs."),
        ("Whats the capital of Germany", "The capital of Germany is Berlin."),
        ("Who won the election?", NO_ANSWER),
        ("What is the capital of Spain?", NO_ANSWER),  # not Paris, which has all words but one
        ("How many legs does a chair have?", NO_ANSWER),
        ("the", NO_ANSWER),
        ("…", NO_ANSWER),
    ],
)
def test_questions_as_a_recogniser_writes_them(knowledge, question, answer):
    assert ask(knowledge, question) == answer


CAPITAL = Turn("What is the capital of France?", "The capital of France is Paris.")
LEGS = Turn("How many legs does a dog have?", "A dog has four legs.")


@pytest.mark.parametrize(
    ("question", "turns", "answer"),
    [
        ("And of Italy?", (), NO_ANSWER),
        ("And of Italy?", (CAPITAL,), "The capital of Italy is Rome."),
        ("What is the capital of Spain?", (CAPITAL,), NO_ANSWER),
        ("How many legs does a dog have?", (CAPITAL,), LEGS.answer),
        ("Please say that again.", (), NO_REPEAT),
        ("And of Italy?", (LEGS, CAPITAL), "The capital of Italy is Rome."),
        ("And of Italy?", (CAPITAL, LEGS), NO_ANSWER),
        ("And a spider?", (CAPITAL, LEGS), "A spider has eight legs."),
        ("And a spider?", (LEGS, CAPITAL), NO_ANSWER),
        ("Please say that again.", (LEGS, CAPITAL), CAPITAL.answer),
        ("Please say that again.", (CAPITAL, LEGS), LEGS.answer),
    ],
)
def test_the_latest_question_alone_completes_a_follow_up(knowledge, question, turns, answer):
    assert ask(knowledge, question, *turns) == answer


def test_problems_of_a_file_are_listed_together(tmp_path):
    file = tmp_path / "answers.txt"
    file.write_text("# a comment\n\nWho?|Me.\nno answer\nWho?|Me.|You.\n|Me.\nWho?|…\n")
    with pytest.raises(DataError) as error:
        Knowledge(file)
    lines = str(error.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{file}:{number}" for number in (4, 5, 6, 7)]
    assert all("expected `question|answer`" in line for line in lines)
    file.write_text("# nothing\n")
    with pytest.raises(DataError, match="no entry, expected lines"):
        Knowledge(file)
    with pytest.raises(DataError, match="no such file; expected a text file"):
        Knowledge(tmp_path / "missing.txt")


def test_a_question_of_its_own_comes_before_a_follow_up(tmp_path):
    """Both entries fit in full: the first with the words of the question before, the second alone."""
    file = tmp_path / "answers.txt"
    file.write_text("What is the capital of France?|Paris.\nWhat is a capital?|A city.\n")
    knowledge = Knowledge(file)
    assert ask(knowledge, "What is a capital?", Turn("What is France?", "A country.")) == "A city."
    assert ask(knowledge, "And the capital?", Turn("What is France?", "A country.")) == "Paris."

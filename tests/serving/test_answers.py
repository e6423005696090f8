"""Answers from a text file, as a recogniser may write the questions, and those of a chat endpoint of OpenAI's protocol."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from common.errors import DataError, UsageError
from serving.answers import NO_ANSWER, NO_REPEAT, ChatEndpoint, Knowledge, Turn, read_entries
from serving.conversation import CHAT_KEY_VARIABLE, KNOWLEDGE, ConversationOptions
from tests.serving.conftest import chunk

CAPITAL = Turn("What is the capital of France?", "The capital of France is Paris.")
LEGS = Turn("How many legs does a dog have?", "A dog has four legs.")


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    pytest.importorskip("rapidfuzz", reason="rapidfuzz, of requirements/eval.txt, is not installed")
    return Knowledge(KNOWLEDGE)


def ask(knowledge: Knowledge, question: str, *turns: Turn) -> str:
    (answer,) = knowledge(question, turns)
    return answer


def test_each_question_of_the_file_has_its_own_answer(knowledge):
    entries = read_entries(KNOWLEDGE)
    assert len(entries) > 30
    assert {question: ask(knowledge, question) for question in entries} == entries


@pytest.mark.parametrize(
    ("question", "turns", "answer"),
    [
        ("could you please tell me how many days there are in a week", (), "There are seven days in a week."),
        ("How many minutes are in an our?", (), "There are sixty minutes in an hour."),
        ("Who won the election?", (), NO_ANSWER),
        ("What is the capital of Spain?", (), NO_ANSWER),  # not Paris, which has all words but one
        ("How many legs does a chair have?", (), NO_ANSWER),
        ("…", (), NO_ANSWER),
        ("And of Italy?", (), NO_ANSWER),
        ("How many legs does a dog have?", (CAPITAL,), LEGS.answer),
        ("Please say that again.", (), NO_REPEAT),
        ("And of Italy?", (LEGS, CAPITAL), "The capital of Italy is Rome."),
        ("And of Italy?", (CAPITAL, LEGS), NO_ANSWER),
        ("Please say that again.", (CAPITAL, LEGS), LEGS.answer),
    ],
)
def test_questions_as_a_recogniser_writes_them_and_follow_ups_of_the_latest_one(knowledge, question, turns, answer):
    assert ask(knowledge, question, *turns) == answer


def test_problems_of_a_file_are_listed_together(tmp_path):
    file = tmp_path / "answers.txt"
    file.write_text("# a comment\n\nWho?|Me.\nno answer\nWho?|Me.|You.\n|Me.\nWho?|…\n")
    with pytest.raises(DataError) as error:
        read_entries(file)
    lines = str(error.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{file}:{number}" for number in (4, 5, 6, 7)]
    assert all("expected `question|answer`" in line for line in lines)
    file.write_text("# nothing\n")
    with pytest.raises(DataError, match="no entry, expected lines"):
        read_entries(file)


def answer_of(endpoint: Any) -> str:
    return "".join(ChatEndpoint(endpoint.url, "parrot", None, "Be brief.", 60.0)("Is it raining?", []))


def test_the_request_and_the_answer(endpoint, monkeypatch):
    endpoint.events = [chunk(""), chunk("It is not. Dr. Gray "), chunk("says so."), chunk(None), "data: [DONE]\n\n"]
    monkeypatch.setenv(CHAT_KEY_VARIABLE, "secret")
    options = ConversationOptions(chat_url=f"{endpoint.url}/", chat_model="parrot", chat_instructions="Be brief.")
    answer = "".join(options.answerer()("Is it raining?", [Turn("Hello.", "Good morning.")]))
    assert answer == "It is not. Dr. Gray says so."
    ((path, authorization, body),) = endpoint.requests
    assert (path, authorization) == ("/v1/chat/completions", "Bearer secret")
    assert body["model"] == "parrot" and body["stream"] is True
    messages = [f"{message['role']}: {message['content']}" for message in body["messages"]]
    assert messages == ["system: Be brief.", "user: Hello.", "assistant: Good morning.", "user: Is it raining?"]


def test_events_as_some_endpoints_write_them(endpoint):
    """WHATWG's server-sent events make the space optional, some send "error": null, and the first choice alone is the answer."""
    first = chunk("It is.").replace('{"object"', '{"error": null, "object"').replace("data: ", "data:")
    endpoint.events = [first, "data:[DONE]\n\n"]
    assert answer_of(endpoint) == "It is." and endpoint.requests[0][1] is None  # no key, no header
    choices = [{"index": i, "delta": {"content": text}} for i, text in enumerate(("Yes.", "No."))]
    endpoint.events = [f"data: {json.dumps({'choices': choices})}\n\n"]
    assert answer_of(endpoint) == "Yes."


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, '{"error": {"message": "wrong key", "type": "auth"}}', "HTTP 401: wrong key"),
        (500, "x" * 5000, f"HTTP 500: {'x' * 200}"),
        (200, 'data: {"error": {"message": "overloaded"}}\n\n', ": overloaded"),
        (200, "data: hello\n\n", "event 'hello', expected a chat completion's chunk"),
        (200, 'data: {"choices": [{"text": "old"}]}\n\n', "expected a chat completion's chunk"),
        (200, chunk(" ") + chunk("\n"), "the answer is empty"),
    ],
)
def test_errors_of_the_endpoint_name_it(endpoint, status, body, message):
    endpoint.status, endpoint.events = status, [body]
    with pytest.raises(DataError) as error:
        answer_of(endpoint)
    assert endpoint.url in str(error.value) and message in str(error.value) and len(str(error.value)) < 300


def test_an_answer_arrives_in_pieces_until_the_endpoint_is_silent(endpoint):
    import httpx

    sent = []

    def events() -> Iterator[str]:
        for event in (chunk("One."), chunk(" Two.")):
            sent.append(event)
            yield event
        raise httpx.ReadTimeout("timed out")

    endpoint.events = events()
    pieces = ChatEndpoint(endpoint.url, "parrot", None, "", 7.0)("Count.", [])
    assert next(pieces) == "One." and len(sent) == 1  # before the endpoint goes on
    assert next(pieces) == " Two." and endpoint.timeout == 7.0
    with pytest.raises(DataError, match=r"no answer \(timed out\)"):
        next(pieces)


def test_flags_that_do_not_fit_are_named_together():
    with pytest.raises(UsageError) as error:
        ConversationOptions(chat_url="localhost:80", chat_timeout=0, remembered_turns=-1)
    flags = ["--chat-url", "--chat-timeout", "--remembered-turns", "--chat-url and --chat-model"]
    assert [line.split(": ")[0] for line in str(error.value).splitlines()] == flags

"""Answers of a chat endpoint that speaks OpenAI's protocol."""

import json
from collections.abc import Iterator

import pytest

from common.errors import DataError, UsageError
from serving.answers import ChatEndpoint, Turn, message_of
from serving.conversation import CHAT_KEY_VARIABLE, ConversationOptions
from tests.serving.conftest import Endpoint, chunk

pytest.importorskip("httpx", reason="httpx, of requirements/serving.txt, is not installed")
pytestmark = pytest.mark.slow


def answer_of(endpoint: Endpoint) -> str:
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


def test_a_long_body_of_an_error_is_cut():
    assert message_of("x" * 5000) == "x" * 200 and message_of('{"error": {"message": "y"}}') == "y"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, '{"error": {"message": "wrong key", "type": "auth"}}', "HTTP 401: wrong key"),
        (500, "<html>broken</html>", "HTTP 500: <html>broken"),
        (404, "", "HTTP 404: no message"),
        (200, 'data: {"error": {"message": "overloaded"}}\n\n', ": overloaded"),
        (200, "data: hello\n\n", "event 'hello', expected a chat completion's chunk"),
        (200, 'data: {"choices": [{"text": "old"}]}\n\n', "expected a chat completion's chunk"),
        (200, "data: [DONE]\n\n", "the answer is empty"),
        (200, "", "the answer is empty"),
        (200, chunk(" ") + chunk("\n"), "the answer is empty"),
    ],
)
def test_errors_of_the_endpoint_name_it(endpoint, status, body, message):
    endpoint.status, endpoint.events = status, [body]
    with pytest.raises(DataError) as error:
        answer_of(endpoint)
    assert endpoint.url in str(error.value) and message in str(error.value)


def test_an_answer_arrives_in_pieces(endpoint):
    sent = []

    def events() -> Iterator[str]:
        for event in (chunk("One."), chunk(" Two."), "data: [DONE]\n\n"):
            sent.append(event)
            yield event

    endpoint.events = events()
    pieces = ChatEndpoint(endpoint.url, "parrot", None, "", 7.0)("Count.", [])
    assert next(pieces) == "One." and len(sent) == 1  # before the endpoint goes on
    assert list(pieces) == [" Two."] and endpoint.timeout == 7.0


def test_a_silent_endpoint_and_none_at_all(endpoint, monkeypatch):
    import httpx

    def events() -> Iterator[str]:
        yield chunk("One.")
        raise httpx.ReadTimeout("timed out")

    endpoint.events = events()
    with pytest.raises(DataError, match=r"no answer \(timed out\)"):
        answer_of(endpoint)
    monkeypatch.undo()
    with pytest.raises(DataError, match="no answer"):
        list(ChatEndpoint("http://127.0.0.1:9/v1", "parrot", None, "", 5)("Is it?", []))


def test_flags_that_do_not_fit_are_named_together():
    with pytest.raises(UsageError) as error:
        ConversationOptions(chat_url="localhost:80", chat_timeout=0, remembered_turns=-1, recogniser="base")
    flags = ["--chat-url", "--chat-timeout", "--remembered-turns", "--chat-url and --chat-model", "--recogniser base"]
    assert [line.split(": ")[0] for line in str(error.value).splitlines()] == flags

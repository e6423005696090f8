"""Answers to questions: retrieval from a text file of questions and answers, or a chat model behind an HTTP endpoint."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from common.errors import DataError, join_problems
from common.files import read_lines
from common.quality.evaluators import optional_import
from common.quality.words import normalise

NO_ANSWER = "I have no answer to that question."
NO_REPEAT = "I have not given an answer yet."
REPEAT = ("say that again", "repeat that", "repeat your answer", "say it again")
FILLERS = frozenset(
    {
        *("a", "an", "the", "is", "are", "do", "does", "have", "has", "there", "of", "in", "on", "to", "and", "so"),
        *("please", "could", "can", "you", "me", "tell", "know", "hello", "hi", "hey"),
    }
)
SAME_WORD = 0.75  # similarity from which two words count as the same
ENOUGH = 0.7  # share of words, by weight, that question and entry must have in common
FOLLOW_UP = 0.9  # factor for entries that need words of the previous question


class Turn(NamedTuple):
    """A question and its answer, as texts."""

    question: str
    answer: str


class Answerer(Protocol):
    """A source of answers. Raises DataError if it cannot give one."""

    def __call__(self, question: str, turns: Sequence[Turn]) -> Iterator[str]:
        """Yield the answer in pieces of text as they become available; `turns` are the earlier ones."""


class Entry(NamedTuple):
    """A question of the file: its words and its answer. None stands for the previous answer."""

    words: frozenset[str]
    answer: str | None


class Knowledge:
    """Answers from a text file with one `question|answer` per line; blank lines and lines that begin with # are ignored.

    A question is compared with each one in the file by the words they have in common, weighted by inverse document frequency
    (Spärck Jones 1972). Similar words count as equal, because recognisers misspell. An entry fits if both sides share ENOUGH. For
    a follow-up ("And of Italy?"), words of the previous question may supply what the entry needs.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises DataError if it is missing, or that lists all lines without a question and an answer."""
        with optional_import():
            from rapidfuzz import fuzz
        self.similarity = fuzz.ratio
        self.entries = [Entry(words_of(text), None) for text in REPEAT]
        self.entries += [Entry(words_of(question), answer) for question, answer in read_entries(path)]
        self.counts = Counter(word for entry in self.entries for word in entry.words)

    def __call__(self, question: str, turns: Sequence[Turn]) -> Iterator[str]:
        """Yield the answer of the best entry, or NO_ANSWER."""
        words, before = words_of(question), words_of(turns[-1].question) if turns else frozenset()
        scores = [
            max(self.score(words, entry.words), FOLLOW_UP * self.score(words, entry.words, before))
            for entry in self.entries
        ]
        best = max(range(len(scores)), key=scores.__getitem__)
        if scores[best] < ENOUGH:
            yield NO_ANSWER
        else:
            yield self.entries[best].answer or (turns[-1].answer if turns else NO_REPEAT)

    def score(self, words: Collection[str], entry: Collection[str], before: Collection[str] = ()) -> float:
        """Return the smaller of two shares, 0 to 1: of the question's words in the entry, and of the entry's in the question."""
        return min(self.share(words, entry), self.share(entry, [*words, *before]))

    def share(self, words: Collection[str], others: Collection[str]) -> float:
        """Return the share of `words`, by weight, that occur in `others`, exactly or nearly."""
        total = sum(map(self.weight, words))
        common = sum(self.weight(word) * self.nearness(word, others) for word in words)
        return common / total if total else 0.0

    def nearness(self, word: str, others: Iterable[str]) -> float:
        """Return the similarity to the nearest of `others`, or 0 if it is below SAME_WORD."""
        nearest = max((self.similarity(word, other) / 100 for other in others), default=0.0)
        return nearest if nearest >= SAME_WORD else 0.0

    def weight(self, word: str) -> float:
        """Return the inverse document frequency of a word."""
        return math.log(1 + len(self.entries) / max(1, self.counts[word]))


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that carry its subject, normalised; or all of them if there are no others."""
    words = frozenset(normalise(text).split())
    return words - FILLERS or words


def read_entries(path: Path) -> list[tuple[str, str]]:
    """Read pairs of question and answer. Raises DataError as Knowledge does."""
    entries, problems = [], []
    for number, line in enumerate(read_lines(path, "expected a text file with lines `question|answer`"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 2 and all(map(normalise, parts)):
            entries.append((parts[0], parts[1]))
        else:
            problems.append(f"{path}:{number}: {line!r}, expected `question|answer`")
    if problems:
        raise DataError(join_problems(problems))
    if not entries:
        raise DataError(f"{path}: no entry, expected lines `question|answer`")
    return entries


class ChatEndpoint:
    """Streamed answers of a chat model behind an OpenAI-compatible endpoint, `POST URL/chat/completions`."""

    def __init__(self, url: str, model: str, key: str | None, instructions: str, timeout: float) -> None:
        """Describe an endpoint.

        Args:
            url: starts with http:// or https:// and often ends in /v1.
            model: the name of the model.
            key: sent as a bearer token, if not None.
            instructions: the system message.
            timeout: seconds for which the endpoint may stay silent.
        """
        self.url, self.model, self.instructions, self.timeout = url.rstrip("/"), model, instructions, timeout
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def __call__(self, question: str, turns: Sequence[Turn]) -> Iterator[str]:
        """Yield the model's answer. Raises DataError with the endpoint's message, or if the answer is empty."""
        is_empty = True
        for piece in self._pieces(self._messages(question, turns)):
            is_empty = is_empty and not piece.strip()
            yield piece
        if is_empty:
            raise DataError(f"{self.url}: the answer is empty, expected text")

    def _messages(self, question: str, turns: Sequence[Turn]) -> list[dict[str, str]]:
        history = [pair for turn in turns for pair in (("user", turn.question), ("assistant", turn.answer))]
        messages = [("system", self.instructions), *history, ("user", question)]
        return [{"role": role, "content": content} for role, content in messages]

    def _pieces(self, messages: list[dict[str, str]]) -> Iterator[str]:
        """Yield the text of the endpoint's events."""
        import httpx

        body = {"model": self.model, "messages": messages, "stream": True}
        address = f"{self.url}/chat/completions"
        try:
            with httpx.stream("POST", address, json=body, headers=self.headers, timeout=self.timeout) as response:
                if response.is_error:
                    response.read()
                    raise DataError(f"{address}: HTTP {response.status_code}: {message_of(response.text)}")
                for line in response.iter_lines():
                    event = line.removeprefix("data:").strip()  # the space after the colon is optional
                    if line.startswith("data:") and event != "[DONE]":
                        yield text_of(event, address)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise DataError(f"{address}: no answer ({error or type(error).__name__})") from None


def text_of(event: str, address: str) -> str:
    """Return the text of a chat completion event, or "". Raises DataError for any other event."""
    try:
        contents: Any = json.loads(event)
        if contents.get("error"):  # some endpoints send null in each event
            raise DataError(f"{address}: {message_of(event)}")
        return "".join(choice["delta"].get("content") or "" for choice in contents["choices"][:1])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{address}: event {event[:80]!r}, expected a chat completion's chunk") from None


def message_of(body: str) -> str:
    """Return the message of an error in OpenAI's shape, otherwise the beginning of the body."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.strip()[:200] or "no message"

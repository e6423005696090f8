"""Answers to questions: retrieval from a text file of questions and answers, or a chat model behind an HTTP endpoint."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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


# A question and the earlier turns -> the answer in pieces of text, as they become available. Raises DataError if it has none.
Answerer = Callable[[str, Sequence[Turn]], Iterator[str]]


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
        self.entries: dict[str, str | None] = dict.fromkeys(REPEAT)  # by question; None: the previous answer
        self.entries |= read_entries(path)
        self.words = {question: words_of(question) for question in self.entries}
        self.counts = Counter(word for words in self.words.values() for word in words)

    def __call__(self, question: str, turns: Sequence[Turn]) -> Iterator[str]:
        """Yield the answer of the best entry, or NO_ANSWER."""
        last = turns[-1] if turns else Turn("", NO_REPEAT)
        words, before = words_of(question), words_of(last.question)
        scores = {
            entry: max(self.score(words, wanted), FOLLOW_UP * self.score(words, wanted, before))
            for entry, wanted in self.words.items()
        }
        best = max(scores, key=scores.__getitem__)
        yield (self.entries[best] or last.answer) if scores[best] >= ENOUGH else NO_ANSWER

    def score(self, words: frozenset[str], entry: frozenset[str], before: frozenset[str] = frozenset()) -> float:
        """Return the smaller of two shares, 0 to 1: of the question's words in the entry, and of the entry's in the question."""
        return min(self.share(words, entry), self.share(entry, words | before))

    def share(self, words: frozenset[str], others: frozenset[str]) -> float:
        """Return the share of `words`, by weight, that occur in `others`, exactly or nearly."""
        total = common = 0.0
        for word in words:
            weight = math.log(1 + len(self.entries) / max(1, self.counts[word]))
            nearness = max((self.similarity(word, other) / 100 for other in others), default=0.0)
            total, common = total + weight, common + (weight * nearness if nearness >= SAME_WORD else 0.0)
        return common / total if total else 0.0


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that carry its subject, normalised; or all of them if there are no others."""
    words = frozenset(normalise(text).split())
    return words - FILLERS or words


def read_entries(path: Path) -> dict[str, str]:
    """Read answers by question. Raises DataError as Knowledge does."""
    entries: dict[str, str] = {}
    problems = []
    for number, line in enumerate(read_lines(path, "expected a text file with lines `question|answer`"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 2 and all(map(normalise, parts)):
            entries.setdefault(*parts)
        else:
            problems.append(f"{path}:{number}: {line!r}, expected `question|answer`")
    if problems:
        raise DataError(join_problems(problems))
    if not entries:
        raise DataError(f"{path}: no entry, expected lines `question|answer`")
    return entries


@dataclass(frozen=True)
class ChatEndpoint:
    """Streamed answers of a chat model behind an OpenAI-compatible endpoint, `POST URL/chat/completions`."""

    url: str  # often ends in /v1
    model: str
    key: str | None  # sent as a bearer token
    instructions: str  # the system message
    timeout: float  # seconds for which the endpoint may stay silent

    def __call__(self, question: str, turns: Sequence[Turn]) -> Iterator[str]:
        """Yield the model's answer. Raises DataError with the endpoint's message, or if the answer is empty."""
        messages = [("system", self.instructions)]
        messages += [pair for turn in turns for pair in (("user", turn.question), ("assistant", turn.answer))]
        contents = [{"role": role, "content": content} for role, content in [*messages, ("user", question)]]
        is_empty = True
        for piece in self._pieces({"model": self.model, "messages": contents, "stream": True}):
            is_empty = is_empty and not piece.strip()
            yield piece
        if is_empty:
            raise DataError(f"{self.url}: the answer is empty, expected text")

    def _pieces(self, body: dict[str, Any]) -> Iterator[str]:
        import httpx

        address = f"{self.url.rstrip('/')}/chat/completions"
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            with httpx.stream("POST", address, json=body, headers=headers, timeout=self.timeout) as response:
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
        has_failed = bool(contents.get("error"))  # some endpoints send null in each event
        texts = [] if has_failed else [choice["delta"].get("content") or "" for choice in contents["choices"][:1]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{address}: event {event[:80]!r}, expected a chat completion's chunk") from None
    if has_failed:
        raise DataError(f"{address}: {message_of(event)}")
    return "".join(texts)


def message_of(body: str) -> str:
    """Return the message of an error in OpenAI's shape, otherwise the beginning of the body."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.strip()[:200] or "no message"

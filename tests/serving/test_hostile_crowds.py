"""A crowd of clients of a server process: a thousand requests at once."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from common.audio.audio_processing import to_pcm
from tests.serving.conftest import reference
from tests.serving.hostile import (
    SPEECH,
    healthy,  # noqa: F401  # a fixture
    hostile_server,  # noqa: F401  # a fixture
    hostile_servers,  # noqa: F401  # a fixture
)
from tests.serving.test_server import ServerProcess

pytestmark = pytest.mark.slow

CROWD = 1000


def test_a_thousand_requests_at_once(server: ServerProcess) -> None:
    """Each has its own audio, or a refusal with Retry-After; none is lost or mixed up."""
    texts = {text: to_pcm(reference(text, 3)).tobytes() for text in ("Two.", "Yes!", "Good morning.", "Ten past nine.")}
    names = list(texts)

    async def ask(client: httpx.AsyncClient, number: int) -> int:
        text = names[number % len(names)]
        answer = await client.post(SPEECH, json={"input": text, "response_format": "pcm"})
        if answer.status_code == 200:
            assert answer.content == texts[text]
        else:
            assert int(answer.headers["retry-after"]) >= 1 and answer.json()["error"]["code"]
        return answer.status_code

    async def ask_all() -> list[int]:
        limits = httpx.Limits(max_connections=CROWD)
        async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(CROWD)))

    statuses = asyncio.run(ask_all())
    print({status: statuses.count(status) for status in set(statuses)})
    assert set(statuses) <= {200, 503} and statuses.count(200) >= 32

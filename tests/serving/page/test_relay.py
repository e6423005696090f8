"""The relay between an event and the player: order, one reader, no leftovers."""

import asyncio
import base64
import json

import pytest

for package in ("fastapi", "httpx"):
    pytest.importorskip(package, reason=f"{package}, of requirements/serving.txt, is not installed")


def test_lines_are_read_once_and_in_order(monkeypatch):
    import httpx
    from fastapi import FastAPI

    from serving.page import relay as module

    monkeypatch.setattr(module, "UNREAD", 0.05)
    relay, app = module.Relay(), FastAPI()
    module.add_route(app, relay)

    async def run() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            channel = relay.open()
            channel.put({"text": "a"})
            reading = asyncio.create_task(client.get(f"/page/audio/{channel.token}"))
            await asyncio.sleep(0.01)
            channel.put({"text": "ä"})  # while it is read
            relay.close(channel)
            answer = await reading
            assert [json.loads(line) for line in answer.text.splitlines()] == [{"text": "a"}, {"text": "ä"}]
            assert not channel.left
            assert answer.headers["content-type"] == "application/x-ndjson"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-accel-buffering"] == "no"  # a proxy would delay the first sound
            assert (await client.get(f"/page/audio/{channel.token}")).status_code == 404
            unread = relay.open()
            relay.close(unread)
            await asyncio.sleep(0.2)
            assert (await client.get(f"/page/audio/{unread.token}")).status_code == 404
            assert (await client.get("/page/audio/guess")).status_code == 404

    asyncio.run(run())


def test_tokens_have_128_random_bits():
    from serving.page.relay import Relay

    relay = Relay()
    tokens = {relay.open().token for _ in range(100)}
    assert len(tokens) == 100 and all(len(base64.urlsafe_b64decode(token + "==")) == 16 for token in tokens)


def test_a_reader_who_leaves_is_noted():
    from serving.limits import Pace
    from serving.page.relay import Relay

    async def run() -> None:
        channel, pace = Relay().open(), Pace(60)
        channel.put({"audio": ""}, seconds=1.0)
        reading = channel.read(pace)
        assert json.loads(await anext(reading)) == {"audio": ""} and not channel.left
        assert pace.has_audio and pace.lag == -2.0  # a second of audio, which a reader may take at half its speed
        await reading.aclose()
        assert channel.left

    asyncio.run(run())

"""The benchmark of a server, with every answer compared with the library."""

import asyncio
import hashlib
import re
from importlib.util import find_spec

import pytest

from benchmarks import load

MISSING = [name for name in ("fastapi", "uvicorn", "av", "httpx") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason="requirements/serving.txt is not installed")


@pytest.mark.slow
def test_a_row_has_every_request_with_the_audio_of_the_library(capsys, monkeypatch) -> None:
    """Clients rest after an answer, and a long row prints notes about its memory."""
    monkeypatch.setattr(load, "NOTE", 1)
    monkeypatch.setattr(load, "SEEDS", 1)
    monkeypatch.setattr(load, "TEXTS", load.TEXTS[1:4:2])  # each is spoken by the library, too
    load.main(["--clients", "2", "--requests", "4", "--pause", "1.5", "--batching"])
    output = capsys.readouterr()
    row = next(line for line in output.out.splitlines() if line.startswith("| on"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == ["2", "4"] and cells[9:11] == ["0", "0"]
    assert all(float(cell) > 0 for cell in cells[3:9])
    assert float(cells[3]) <= 2 / 1.5  # two clients, 1.5 s after each answer
    command = "python -m benchmarks.load --clients 2 --requests 4 --pause 1.5 --batching"
    assert re.search(rf"`{command}`, .* threads, PyTorch", output.out)
    assert re.search(r"^\d+ s: \d answers, 0 wrong or lost, \d+\.\d MiB$", output.err, re.MULTILINE)


def test_wrong_and_lost_answers_are_counted() -> None:
    import httpx

    def answer(request: httpx.Request) -> httpx.Response:
        if b'"seed":1' in request.content.replace(b" ", b""):
            return httpx.Response(503, stream=httpx.ByteStream(b""))
        return httpx.Response(200, stream=SlowStream())

    class SlowStream(httpx.AsyncByteStream):
        async def __aiter__(self):
            for part in (b"au", b"dio"):
                yield part
                await asyncio.sleep(0.5)

    async def results() -> list[load.Reply]:
        digests = [hashlib.sha256(data).hexdigest() for data in (b"audio", b"audio", b"other")]
        jobs = [load.SpeechJob("Two.", seed, digest, 1.0) for seed, digest in zip((0, 1, 2), digests, strict=True)]
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://server") as client:
            return [await load.send(client, job) for job in jobs]

    replies = asyncio.run(results())
    assert [reply.result for reply in replies] == ["right", "lost", "wrong"]
    for first, last, *_ in (replies[0], replies[2]):
        assert 0 < first < last - 0.9  # before the server's pauses, and after them

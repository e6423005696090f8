"""Access to the studio's page: the token, names of the machine, other pages, and paths beyond the projects."""

import json
import os
import re
import secrets
import socket
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.browser import PATIENCE, wait
from tests.recipe import ROOT
from tests.studio.page_server import PageServer, ask

pytestmark = pytest.mark.slow
SECRET = "a line of another folder"
TOKEN, PORT = "a-token-of-letters-and-marks", 8010


@pytest.fixture(scope="module")
def local(server: PageServer, projects: Path) -> PageServer:
    """The server, with files that no visitor may read, and links that lead out of its projects."""
    outside = projects.parent / "outside"
    for place in (outside, projects / "own", projects / "inner"):
        place.mkdir()
    for path in (outside / "secret.txt", outside / "plan.json", projects / "own" / "notes.txt"):
        path.write_text(json.dumps({"secret": SECRET}))
    (projects / "linked").symlink_to(outside)
    (projects / "inner" / "plan.json").symlink_to(outside / "plan.json")
    (projects / "inner" / "clips.tsv").symlink_to(outside / "secret.txt")
    return server


@pytest.fixture
def remote() -> Any:
    """A client of a gate that asks for a token, before an app that answers everything."""
    testing = pytest.importorskip("starlette.testclient", reason="requirements/studio.txt is not installed")
    from starlette.responses import PlainTextResponse

    from studio.page.access import Access, TokenGate

    gate = TokenGate(PlainTextResponse("Voice studio"), Access(token=TOKEN, port=PORT))
    return testing.TestClient(gate, base_url=f"http://my-machine:{PORT}")


def test_loopback_needs_no_token_and_refuses_foreign_names_and_other_pages(local):
    """A page elsewhere may let its own name stand for 127.0.0.1."""
    answer = ask(local, "/", Host=f"localhost:{local.port}")
    assert answer.status == 200 and "Voice studio" in answer.text and answer.headers["X-Frame-Options"] == "SAMEORIGIN"
    origin = local.address.rstrip("/")
    assert ask(local, "/gradio_api/queue/join", "POST", b"{}", Origin=origin).status == 422  # read, and found empty
    for path in ("/", "/gradio_api/heartbeat/x", "/speak/own/"):
        for name in ("evil.example", ""):  # others: tests/common/web
            answer = ask(local, path, Host=name)
            assert answer.status == 403 and "this machine alone" in answer.text and SECRET not in answer.text
        for origin in ("https://evil.example", "http://127.0.0.1:1"):
            answer = ask(local, path, "POST", b"{}", Origin=origin, Content_Type="application/json")
            assert answer.status == 403 and "comes from another page" in answer.text


def test_without_the_token_every_request_answers_401_in_words(remote):
    for headers in ({}, {"Cookie": f"studio-token-{PORT}=wrong"}, {"Authorization": "Bearer wrong"}):
        answer = remote.get("/config", headers=headers)
        assert answer.status_code == 401 and "needs its token" in answer.text
    for wrong in ("wrong", TOKEN[:-1], f"{TOKEN}x", "", "%FF"):
        assert remote.get(f"/?token={wrong}").status_code == 401
    for path in ("/", f"/?token={TOKEN}"):  # an address alone sends nothing
        assert remote.post(path, content=b"{}").status_code == 401


def test_the_token_becomes_a_cookie(remote):
    answer = remote.get(f"/?token={TOKEN}")
    assert answer.status_code == 200 and 'url=/"' in answer.text and TOKEN not in answer.text
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(re.split("; ?", cookie))
    assert answer.headers["Cache-Control"] == "no-store" and answer.headers["Referrer-Policy"] == "no-referrer"
    remote.cookies.clear()
    pair = cookie.split(";")[0]
    assert remote.get("/", headers={"Cookie": f"other=1; {pair}"}).text == "Voice studio"
    assert remote.get("/config", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    refused = remote.post("/gradio_api/queue/join", headers={"Cookie": pair, "Origin": "http://evil.example"})
    assert refused.status_code == 403


def test_a_token_of_ones_own_or_a_generated_one(monkeypatch):
    """Beyond loopback one is generated; one of the user's own is needed on loopback, too."""
    pytest.importorskip("uvicorn", reason="uvicorn, of requirements/studio.txt, is not installed")
    from studio.__main__ import choose_token
    from studio.arguments import StudioConfig

    monkeypatch.delenv("STUDIO_TOKEN", raising=False)
    assert choose_token(StudioConfig()) is None
    assert len(choose_token(StudioConfig(host="0.0.0.0")) or "") >= 32
    monkeypatch.setenv("STUDIO_TOKEN", " tea ")
    assert choose_token(StudioConfig()) == choose_token(StudioConfig(host="0.0.0.0")) == "tea"
    assert choose_token(StudioConfig(token="milk")) == "milk"


def escapes(projects: Path) -> list[str]:
    outside, up = projects.parent / "outside", ("..", "%2e%2e")
    notes = [*(f"{parent}/own/notes.txt" for parent in up), "..%2Fown%2Fnotes.txt"]
    ours = ["own/notes.txt", "linked/secret.txt", *(f".uploads/{path}" for path in notes)]
    theirs = ["/etc/passwd", "%2Fetc%2Fpasswd", f"{ROOT}/README.md", "README.md"]
    return [*theirs, *(f"{projects}/{path}" for path in ours), f"{outside}/secret.txt", f"file://{outside}/secret.txt"]


def test_no_route_reads_a_file(local, projects):
    (projects / ".uploads").mkdir(exist_ok=True)
    gradio = [f"/gradio_api/{route}" for route in ("file=", "file/", "stream/")]
    for path in escapes(projects):
        for route in (*gradio, "/static/", "/assets/"):
            answer = ask(local, f"{route}{path}")
            assert answer.status in (403, 404, 405), (route, path, answer)
            assert SECRET not in answer.text and "root:" not in answer.text


def upload(server: PageServer, name: str, content: bytes) -> str:
    """Upload a file under a name; return the path that the server answers with."""
    boundary = secrets.token_hex(8)
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
    kind = f"multipart/form-data; boundary={boundary}"
    answer = ask(server, "/gradio_api/upload", "POST", body, Content_Type=kind)
    assert answer.status == 200, answer
    return json.loads(answer.text)[0]


@pytest.mark.parametrize("name", ["../../../escape.wav", "/tmp/escape.wav", "..\\..\\escape.wav", "own/escape.wav"])
def test_uploads_stay_in_their_folder(local, projects, name):
    path = Path(upload(local, name, b"sound"))
    assert path.resolve().is_relative_to((projects / ".uploads").resolve()) and path.read_bytes() == b"sound"
    assert [path for path in projects.parent.rglob("*escape.wav") if ".uploads" not in path.parts] == []


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("cut", [10**6, 90], ids=["in the second file", "in the first file"])
def test_an_upload_that_breaks_off_leaves_nothing(local, projects, cut):
    """A closed page left its half file in the folder of uploads for good, and a traceback in the server's output."""
    uploads, output = projects / ".uploads", local.output.read_text()
    uploads.mkdir(exist_ok=True)
    before = files_in(uploads)
    part = '--mark\r\nContent-Disposition: form-data; name="files"; filename="{}.wav"\r\n\r\n'
    body = part.format("a").encode() + bytes(500_000) + f"\r\n{part.format('b')}".encode() + bytes(10**6)
    head = f"POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1:{local.port}\r\nContent-Length: {len(body) + 8}\r\n"
    head += "Content-Type: multipart/form-data; boundary=mark\r\n\r\n"
    with socket.create_connection(("127.0.0.1", local.port)) as connection:
        connection.sendall(head.encode() + body[:cut])
        wait(lambda: files_in(uploads) != before)
    wait(lambda: files_in(uploads) == before)
    path = Path(upload(local, "whole.wav", b"sound"))
    assert path.read_bytes() == b"sound"
    time.sleep(0.5)  # the server may still be at the end of the broken one
    assert local.output.read_text() == output


def test_uploads_of_an_earlier_server_are_removed_once_they_are_old(tmp_path):
    pytest.importorskip("starlette", reason="starlette, of requirements/studio.txt, is not installed")
    from studio.page.access import remove_old

    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.wav").write_bytes(b"sound")
    for path in (tmp_path / "old" / "a.wav", tmp_path / "old"):
        os.utime(path, (0, 0))
    (tmp_path / "link").symlink_to(tmp_path.parent)
    remove_old(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "new"]
    assert (tmp_path / "new" / "a.wav").exists()


def call(server: PageServer, name: str, event: str, data: list[object]) -> str:
    """Send an event of the component `name` as a client of its own would; return the answers of the stream."""
    config = json.loads(ask(server, "/config").text)
    component = next(item["id"] for item in config["components"] if item["props"].get("elem_id") == name)
    index = next(item["id"] for item in config["dependencies"] if [component, event] in item["targets"])
    body = {"data": data, "fn_index": index, "session_hash": secrets.token_hex(6)}
    joined = ask(server, "/gradio_api/queue/join", "POST", json.dumps(body).encode(), Content_Type="application/json")
    assert joined.status == 200, joined
    answers = ""
    address = f"{server.address}gradio_api/queue/data?session_hash={body['session_hash']}"
    with urlopen(address, timeout=PATIENCE) as stream:
        while '"process_completed"' not in answers and (line := stream.readline().decode()):
            answers += line
    return answers


def files_of(folder: Path) -> dict[str, float]:
    """Return the times of all files below a folder, but for uploads."""
    paths = [path for path in folder.rglob("*") if ".uploads" not in path.parts]
    return {str(path): path.lstat().st_mtime for path in paths}


@pytest.mark.parametrize("project", ["linked", "inner"])  # others: test_project_files.py
def test_no_event_follows_a_path_or_a_link(local, projects, project):
    """As a project, or in `inner`, whose plan and table are links."""
    events = [
        ("plan-save", [project, "{}"]),
        ("next", [project, {}, "../../outside/secret", "yes", ""]),
        ("save", [project, {}, "secret", "yes", ""]),
    ]
    if project != "inner":
        options = ("prepare", ["en", False]), ("plan", ["embedded", "", "hours", False]), ("train", [])
        events += [(name, [project, *values]) for name, values in options]
    before = files_of(projects.parent)
    for name, data in events:
        answer = call(local, name, "click", data)
        assert '"success":false' in answer and SECRET not in answer and "root:" not in answer, name
    assert files_of(projects.parent) == before


@pytest.mark.parametrize("path", ["/etc/passwd", "README.md"])
def test_files_that_were_not_uploaded_are_not_taken(local, projects, path):
    data = {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "a.txt"}
    answer = call(local, "files", "upload", [[data], "own"])
    assert '"success":false' in answer
    assert not (projects / "own" / "recordings").exists()
    assert not list((projects / ".uploads").rglob(Path(path).name))
    assert not local.hosts.exists()  # no other host was contacted

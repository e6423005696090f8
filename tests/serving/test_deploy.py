"""Containers: files that parse, queries of metrics that the server exports, flags that it has, an image with all it imports."""

import json
import re
import shlex
from typing import Any

import pytest

from tests.recipe import ROOT
from tests.test_architecture import MAY_IMPORT

for package in ("fastapi", "av", "prometheus_client", "yaml"):
    pytest.importorskip(package, reason=f"{package}, of requirements/serving.txt, is not installed")

DEPLOY = ROOT / "serving" / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


def documents(name: str) -> list[Any]:
    import yaml

    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_every_query_uses_exported_metrics() -> None:
    from prometheus_client import generate_latest

    from serving.metrics import Metrics

    types = re.findall(r"^# TYPE (\S+) (\S+)$", generate_latest(Metrics().registry).decode(), re.MULTILINE)
    exported = {f"{name}{suffix}" for name, kind in types for suffix in SUFFIXES[kind]}
    panels = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    queries += [rule["expr"] for file in documents("rules.yaml") for group in file["groups"] for rule in group["rules"]]
    queries.append((DEPLOY / "kubernetes.yaml").read_text())
    assert len(queries) > 15
    assert {name for query in queries for name in re.findall(r"\b(?:tts|process)_\w+", query)} <= exported


def test_commands_have_flags_that_exist_and_time_to_stop(monkeypatch) -> None:
    from serving.__main__ import LAST_BYTES, parse_args

    monkeypatch.delenv("TTS_API_KEY", raising=False)
    for name, value in re.findall(r"(TTS_\w+)=(\S+)", DOCKERFILE):
        monkeypatch.setenv(name, value)
    (line,) = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)
    entry = json.loads(line)[3:]
    service = documents("compose.yaml")[0]["services"]["tts"]
    (deployment,) = [document for document in documents("kubernetes.yaml") if document["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    for more in ([], service["command"], pod["containers"][0]["args"]):
        config = parse_args(entry + more)
        assert (config.host, config.port, config.api_key) == ("0.0.0.0", 8000, None)
        for seconds in (pod["terminationGracePeriodSeconds"], int(service["stop_grace_period"].removesuffix("s"))):
            assert seconds > config.grace + LAST_BYTES


@pytest.mark.parametrize(
    ("words", "variables", "place"),
    [
        ("", {"TTS_HOST": "0.0.0.0", "TTS_PORT": "8000"}, "127.0.0.1:8000"),
        ("--port 9000 --host=::", {"TTS_PORT": "8000"}, "[::1]:9000"),
        ("--port 1 --port=2 --host 10.0.0.7", {}, "10.0.0.7:2"),
    ],
)
def test_the_health_check_asks_where_the_server_listens(words: str, variables: dict, place: str) -> None:
    from serving.deploy.healthcheck import address

    assert address(["python", "-m", "serving", *words.split(), ""], variables) == f"http://{place}/readyz"


def test_the_image_has_all_that_the_server_imports() -> None:
    copies = [shlex.split(line)[1:-1] for line in re.findall(r"^COPY .*$", DOCKERFILE, re.MULTILINE)]
    sources = {source for words in copies for source in words}
    assert [source for source in sources if not (ROOT / source).exists()] == []
    needed, pending = set(), ["serving"]
    while pending:
        part = pending.pop()
        needed.add(part)
        pending += MAY_IMPORT[part] - needed
    assert {part for part in needed if not ({part, f"{part}.py"} & sources)} == set()
    assert "voice" in sources

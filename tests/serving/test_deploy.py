"""Containers: files that can be parsed, metrics that the server exports, flags that it has, paths that it answers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recipe import ROOT
from tests.test_architecture import MAY_IMPORT

for package in ("fastapi", "av", "prometheus_client", "yaml"):
    pytest.importorskip(package, reason=f"{package}, of requirements/serving.txt, is not installed")

DEPLOY = ROOT / "serving" / "deploy"
DOCKERFILE = (ROOT / "serving/deploy/Dockerfile").read_text()
METRIC = re.compile(r"\b(?:tts|process)_\w+")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


def documents(name: str) -> list[Any]:
    import yaml

    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def exported_metrics() -> set[str]:
    """Return the names of all series that /metrics can have, by the types in its text."""
    from serving.metrics import Metrics

    types = re.findall(r"^# TYPE (\S+) (\S+)$", Metrics().text().decode(), re.MULTILINE)
    return {f"{name}{suffix}" for name, kind in types for suffix in SUFFIXES[kind]}


def kinds() -> dict[str, Any]:
    return {document["kind"]: document for document in documents("kubernetes.yaml")}


def expressions() -> Iterator[str]:
    """Yield the queries of the dashboard, the alerts and the autoscaler."""
    panels = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())["panels"]
    yield from (target["expr"] for panel in panels for target in panel["targets"])
    (rules,) = documents("rules.yaml")
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])
    yield from (metric["pods"]["metric"]["name"] for metric in kinds()["HorizontalPodAutoscaler"]["spec"]["metrics"])


def test_every_query_uses_exported_metrics():
    exported, queries = exported_metrics(), list(expressions())
    assert len(queries) > 15 and all(METRIC.search(query) for query in queries)
    assert {name for query in queries for name in METRIC.findall(query)} <= exported
    comment = (DEPLOY / "kubernetes.yaml").read_text()
    assert set(METRIC.findall(comment)) <= exported


def test_the_dashboard_covers_the_servers_own_metrics():
    used = " ".join(expressions())
    own = {re.sub("_(bucket|sum|count)$", "", name) for name in exported_metrics() if name.startswith("tts_")}
    assert [name for name in sorted(own) if name not in used and not name.endswith("_created")] == []


def commands() -> list[list[str]]:
    """List the words after `python -m serving` of each way to start the server."""
    (line,) = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)
    module, entry = json.loads(line)[:3], json.loads(line)[3:]
    assert module == ["python", "-m", "serving"]
    (compose,) = documents("compose.yaml")
    (container,) = kinds()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return [entry, entry + compose["services"]["tts"]["command"], entry + container["args"]]


@pytest.mark.parametrize("number", range(3))
def test_commands_have_flags_that_exist(number, monkeypatch):
    from serving.__main__ import LAST_BYTES, parse_args

    monkeypatch.delenv("TTS_API_KEY", raising=False)
    config = parse_args(commands()[number])
    assert (config.host, config.port) == ("0.0.0.0", 8000)
    pod = kinds()["Deployment"]["spec"]["template"]["spec"]
    (compose,) = documents("compose.yaml")
    assert pod["terminationGracePeriodSeconds"] > config.grace + LAST_BYTES
    assert int(compose["services"]["tts"]["stop_grace_period"].removesuffix("s")) > config.grace + LAST_BYTES


def test_compose_starts_without_a_key(monkeypatch):
    """A name without a value takes the variable of the environment; where it has none, the container has none either."""
    from serving.__main__ import parse_args

    monkeypatch.delenv("TTS_API_KEY", raising=False)
    (compose,) = documents("compose.yaml")
    for name, value in compose["services"]["tts"]["environment"].items():
        if value is not None:
            monkeypatch.setenv(name, re.sub(r"\$\{\w+(?::?-([^}]*))?\}", lambda found: found[1] or "", value))
    assert "TTS_API_KEY" in compose["services"]["tts"]["environment"]
    assert parse_args(commands()[1]).api_key is None


def test_probes_and_scrapes_ask_for_paths_of_the_server():
    from serving.app import make_app
    from serving.config import ServingConfig
    from serving.engine import Engine
    from serving.voices import Voices

    config = ServingConfig(page=False)
    paths = set(make_app(Engine(Voices(config), config), config).openapi()["paths"])
    template = kinds()["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    assert {probe["path"] for probe in probes} == {"/readyz", "/healthz"} <= paths
    assert {probe["port"] for probe in probes} == {container["ports"][0]["name"]}
    assert template["metadata"]["annotations"]["prometheus.io/path"] in paths
    (scrape,) = documents("prometheus.yaml")[0]["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == ["tts:8000"] and "tts" in documents("compose.yaml")[0]["services"]
    assert "http://127.0.0.1:8000/readyz" in DOCKERFILE


def test_the_image_has_all_that_the_server_imports():
    copies = [shlex.split(line)[1:-1] for line in re.findall(r"^COPY .*$", DOCKERFILE, re.MULTILINE)]
    sources = {source for words in copies for source in words}
    assert [source for source in sources if not (ROOT / source).exists()] == []
    needed, pending = set(), ["serving"]
    while pending:
        part = pending.pop()
        needed.add(part)
        pending += MAY_IMPORT[part] - needed
    assert {part for part in needed if not ({part, f"{part}.py"} & sources)} == set()
    assert "voice" in sources and re.search(r"^USER 10001$", DOCKERFILE, re.MULTILINE)
    pins = (ROOT / "requirements/eval.txt").read_text()
    (pattern,) = re.findall(r"grep -E '(\S+==)' requirements/eval.txt", DOCKERFILE)
    assert len(set(re.findall(pattern, pins, re.MULTILINE))) == 5


def test_the_files_that_compose_mounts_exist():
    (compose,) = documents("compose.yaml")
    mounts = [mount for service in compose["services"].values() for mount in service.get("volumes", ())]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(files) == 5 and [file for file in files if not (DEPLOY / file).is_file()] == []
    assert (DEPLOY / compose["services"]["tts"]["build"]["context"]).resolve() == Path(ROOT).resolve()
    (sources,) = documents("grafana/datasources.yaml")
    panels = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"] for source in sources["datasources"]}

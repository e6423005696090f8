"""requirements/locks/*.txt: each has a version and a hash for all that its requirements file names, and no two of them disagree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.recipe import ROOT

LOCKS = ROOT / "requirements" / "locks"
REQUIREMENTS = {path.name: path for path in (ROOT / "requirements.txt", *ROOT.glob("requirements/*.txt"))}
REQUIREMENTS["tests.txt"] = ROOT / "tests" / "requirements.txt"
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
SYSTEMS = [
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
]
MACHINES = [
    default_environment() | {"python_version": version, "python_full_version": f"{version}.0"} | system
    for version in ("3.10", "3.11", "3.12", "3.13")
    for system in SYSTEMS
]


class Pin(NamedTuple):
    """One entry of a lock."""

    requirement: Requirement
    hashes: list[str]


def read_lock(path: Path) -> list[Pin]:
    entries = re.sub(r"\\\n", " ", path.read_text()).splitlines()
    entries = [entry for entry in entries if entry.strip() and not entry.lstrip().startswith("#")]
    words = [(entry.partition(" --hash")[0], HASH.findall(entry)) for entry in entries]
    return [Pin(Requirement(text), hashes) for text, hashes in words]


def read_requirements(path: Path) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def versions(pins: list[Pin], machine: dict[str, str]) -> dict[str, str]:
    """The version of each package on a machine; two of one package are an error."""
    found: dict[str, str] = {}
    for requirement, _ in pins:
        if requirement.marker is None or requirement.marker.evaluate(machine):
            (specifier,) = requirement.specifier
            assert canonicalize_name(requirement.name) not in found, f"{requirement.name} twice on {machine}"
            found[canonicalize_name(requirement.name)] = specifier.version
    return found


def test_every_requirements_file_has_a_lock() -> None:
    assert {path.name for path in LOCKS.iterdir()} == set(REQUIREMENTS)


@pytest.mark.parametrize("name", sorted(REQUIREMENTS))
def test_a_lock_satisfies_its_requirements_with_hashes(name: str) -> None:
    pins = read_lock(LOCKS / name)
    for requirement, hashes in pins:
        assert [specifier.operator for specifier in requirement.specifier] == ["=="] and hashes, requirement
    for machine in MACHINES:
        found = versions(pins, machine)
        for wanted in read_requirements(REQUIREMENTS[name]):
            if wanted.marker is None or wanted.marker.evaluate(machine):
                version = found.get(canonicalize_name(wanted.name))
                assert version is not None and wanted.specifier.contains(version, prereleases=True), (wanted, version)
    text = (LOCKS / name).read_text()
    assert not re.search(r"://|--(extra-)?index-url|--find-links|^(torch|nvidia-)", text, re.MULTILINE)


def test_the_locks_install_together() -> None:
    for machine in MACHINES:
        chosen: dict[str, str] = {}
        for name in sorted(REQUIREMENTS):
            found = versions(read_lock(LOCKS / name), machine)
            differing = {package for package in found if chosen.get(package, found[package]) != found[package]}
            assert not differing, f"{name}: {differing}"
            chosen |= found

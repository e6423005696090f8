"""Checks at the gate of a server: the secret of a request, its origin, the host it names."""

import base64

import pytest

pytest.importorskip("starlette", reason="starlette, of requirements/serving.txt, is not installed")
from starlette.datastructures import Headers

from common.web.gate import basic_password, bearer_token, host_name, is_loopback, is_own_origin, is_secret


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("value", "bearer", "password"),
    [
        ("Bearer secret", True, False),
        ("bearer  secret ", True, False),  # the scheme has no case (RFC 9110, 11.1)
        ("BASIC " + basic("me:secret")[6:], False, True),
        (basic("me:secret"), False, True),
        (basic("secret"), False, False),
        (basic("secret:"), False, False),
        (basic("me:secre"), False, False),
        ("Basic §", False, False),
        ("Bearer", False, False),
        ("Bearer ", False, False),
        ("Bearer s", False, False),
        ("Bearer secret2", False, False),
        ("Token secret", False, False),
        ("secret", False, False),
        ("", False, False),
    ],
)
def test_only_the_whole_secret_opens(value: str, bearer: bool, password: bool) -> None:
    headers = Headers({"authorization": value})
    found = [is_secret(one(headers), "secret") for one in (bearer_token, basic_password)]
    assert found == [bearer, password]
    assert not is_secret(bearer_token(Headers({})), "secret") and not is_secret(None, "")
    headers = Headers(raw=[(b"authorization", "Bearer schlüssel".encode())])
    assert is_secret(bearer_token(headers), "schlüssel")


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        (None, "a.example", True),
        ("http://a.example:80", "a.example:80", True),
        ("https://A.example", "a.EXAMPLE", True),
        ("http://a.example", "a.example:8000", False),
        ("http://b.example", "a.example", False),
        ("null", "a.example", False),
        ("null", "", False),
        ("http://[", "", False),
    ],
)
def test_origins(origin: str | None, host: str, own: bool) -> None:
    assert is_own_origin(Headers({"host": host} | ({"origin": origin} if origin is not None else {}))) is own


@pytest.mark.parametrize(
    ("netloc", "loopback"),
    [
        *((name, True) for name in ("localhost", "LOCALHOST.:80", "127.0.0.1:8010", "127.8.9.10", "[::1]:80")),
        *((name, False) for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1")),
        *((name, False) for name in ("", "[")),
    ],
)
def test_names_of_this_machine(netloc: str, loopback: bool) -> None:
    assert is_loopback(host_name(netloc)) is loopback


@pytest.mark.parametrize("name", ["Localhost", "[::1]", "localhost."])
def test_a_server_on_this_machine_alone_may_be_named_in_any_way(name: str) -> None:
    """--host, unlike the header Host, comes as it was typed."""
    assert is_loopback(name)

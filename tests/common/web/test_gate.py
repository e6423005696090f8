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
        *((value, False, False) for value in ("Basic §", "Bearer", "Bearer s", "Bearer secret2", "Token secret")),
    ],
)
def test_only_the_whole_secret_opens(value: str, bearer: bool, password: bool) -> None:
    headers = Headers({"authorization": value})
    found = [is_secret(one(headers), "secret") for one in (bearer_token, basic_password)]
    assert found == [bearer, password]
    assert not is_secret(bearer_token(Headers({})), "secret") and not is_secret(None, "")
    assert basic_password(Headers({"authorization": basic("secret")})) is None  # not the empty password
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


def test_names_of_this_machine() -> None:
    """--host, unlike the header Host, comes as it was typed."""
    own = ("localhost", "LOCALHOST.:80", "127.0.0.1:8010", "127.8.9.10", "[::1]:80")
    others = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "", "[")
    assert [is_loopback(host_name(netloc)) for netloc in own + others] == [True] * 5 + [False] * 6
    assert all(map(is_loopback, ("Localhost", "[::1]", "localhost.")))

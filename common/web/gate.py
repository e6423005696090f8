"""Checks at the gate of a server: the secret that a request carries, its origin, the host it names."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers


def is_secret(found: bytes | None, secret: str) -> bool:
    """Compare in constant time."""
    return found is not None and hmac.compare_digest(found, secret.encode())


def bearer_token(headers: Headers) -> bytes | None:
    """Return the token of the header `Authorization: Bearer TOKEN`, or None."""
    return _credentials(headers, "bearer")


def basic_password(headers: Headers) -> bytes | None:
    """Return the password that a browser's own form has sent, or None."""
    try:
        _, colon, password = base64.b64decode(_credentials(headers, "basic") or b"", validate=True).partition(b":")
    except binascii.Error:
        return None
    return password if colon else None


def _credentials(headers: Headers, scheme: str) -> bytes | None:
    found, _, value = headers.get("authorization", "").partition(" ")
    # The scheme has no case (RFC 9110, 11.1); Starlette decodes headers as Latin-1.
    return value.strip().encode("latin-1") if found.lower() == scheme else None


def is_own_origin(headers: Headers) -> bool:
    """True unless a page of another origin sends the request."""
    host = headers.get("host", "").lower()
    with suppress(ValueError):  # an origin of another form
        return "origin" not in headers or urlsplit(headers["origin"]).netloc.lower() == host != ""
    return False


def host_name(netloc: str) -> str:
    """Return the name in NAME or NAME:PORT; "" for text of another form."""
    with suppress(ValueError):
        return urlsplit(f"//{netloc}").hostname or ""
    return ""


def is_loopback(name: str) -> bool:
    """True for localhost and loopback addresses, without a port."""
    name = name.strip("[]").lower().removesuffix(".")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"

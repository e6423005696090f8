"""Checks at the gate of a server: the secret that a request carries, its origin, the host it names."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
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
    origin = headers.get("origin")
    return origin is None or origin_host(origin) == headers.get("host", "").lower() != ""


def origin_host(origin: str) -> str:
    """Return NAME:PORT of an origin; "" for text of another form, and for `null`."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def host_name(netloc: str) -> str:
    """Return the name in NAME or NAME:PORT; "" for text of another form."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """True for localhost and loopback addresses, without a port."""
    name = name.strip("[]").lower().removesuffix(".")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"

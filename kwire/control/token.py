"""The token of the control API: whoever is on another machine shows it with each request.

On 127.0.0.1 none is needed, unless the variable KWIRE_CONTROL_TOKEN is set or the brokers ask clients who they are:
others on this machine could read there what the brokers keep from them. At other addresses there is always one: that of
the variable, or one that is made up and stands in the URL of the ready line, where kwire's commands, curl and browsers
find it. A request shows it as `Authorization: Bearer TOKEN` (RFC 6750), or as the password of a Basic
authorization (RFC 7617), which is what curl and browsers make of a URL with a user.
"""

from __future__ import annotations

from kwire.control import TOKEN
from kwire.server.errors import NodeError

USER = "kwire"
"""The name beside a token in a URL; any other will do."""
_BYTES = 18


def token_of(given: str | None) -> tuple[str, bool]:
    """The token that was given, or one that is made up; and whether it was made up. NodeError."""
    if not given:
        return made_up(), True
    if not (given.isascii() and given.isprintable()) or " " in given:
        raise NodeError(f"{TOKEN}: expected visible ASCII characters without spaces")
    return given, False


def made_up() -> str:
    """A token that nobody can guess, of characters that a URL may have."""
    from secrets import token_urlsafe

    return token_urlsafe(_BYTES)


def shows(authorization: bytes, token: str) -> bool:
    """Whether the value of an Authorization header shows the token. The comparison takes the same time for any."""
    from hmac import compare_digest

    scheme, _, value = authorization.strip().partition(b" ")
    shown = value.strip()
    if scheme.lower() == b"basic":
        from base64 import b64decode

        try:
            shown = b64decode(shown, validate=True).partition(b":")[2]
        except ValueError:
            return False
    elif scheme.lower() != b"bearer":
        return False
    return compare_digest(shown, token.encode())

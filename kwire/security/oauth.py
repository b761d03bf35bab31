"""OAUTHBEARER (RFC 7628) as Kafka speaks it: both halves of the exchange, and tokens that nobody has signed.

Answers to org.apache.kafka.common.security.oauthbearer.internals.{OAuthBearerSaslServer,
OAuthBearerClientInitialResponse} and …internals.unsecured.{OAuthBearerUnsecuredJws,OAuthBearerValidationUtils,
OAuthBearerUnsecuredValidatorCallbackHandler}. Signed tokens: `signed_tokens.py`. A client whose token is refused reads
why in RFC 7628's JSON; then it may show another one, or ends the exchange by a token of one byte, 0x01.

Invariant: no text of a `SaslFailure` or a `BadTokenError` has a token in it.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from math import floor

from kwire.security.mechanism import OAUTHBEARER, Exchange, SaslFailure, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal, NoReturn

_END = b"\x01"
_VALUE = r"[\x21-\x7e \t\r\n]+"
_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    rf"(?P<pairs>(?:[A-Za-z]+={_VALUE}\x01)*)\x01"
)
_BEARER = re.compile(r"(?P<scheme>[A-Za-z0-9_]+)[ ]+(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_SCOPE_ITEM = re.compile(r"[\x23-\x5b\x5d-\x7e\x21]+")
_MAX_LONG = 2**63 - 1
LIFETIME_S = 3600
"""Of tokens that are made here: Java's default (unsecuredLoginLifetimeSeconds)."""


class BadTokenError(Exception):
    """A token is refused. Its text is for the log; `scope`: that it would need, None: that is not the reason."""

    def __init__(self, text: str, scope: str | None = None) -> None:
        super().__init__(text)
        self.scope = scope

    def answer(self) -> str:
        """The answer to the client, in JSON as Kafka writes it."""
        if self.scope is None:
            return '{"status":"invalid_token"}'
        return f'{{"status":"insufficient_scope", "scope":"{self.scope}"}}'


class Token:
    """What a valid token says. `expires_ms`: since the epoch."""

    __slots__ = ("expires_ms", "name")

    def __init__(self, name: str, expires_ms: int) -> None:
        self.name = name
        self.expires_ms = expires_ms


class OAuthServer(Exchange):
    """The server's half. Kafka's handlers take every extension of a client's, and nothing of Kafka's reads them."""

    def __init__(self, validated: Callable[[str], Token]) -> None:
        """`validated`: what a token says. BadTokenError."""
        super().__init__(OAUTHBEARER)
        self._validated = validated
        self._answer: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        if token == _END and self._answer is not None:
            raise SaslFailure.said(self._answer, self.refused)
        self._answer = self.refused = None
        authzid, text = _parsed(token)
        try:
            found = self._validated(text)
        except BadTokenError as error:
            self._answer, self.refused = error.answer(), str(error)
            return self._answer.encode()
        if authzid and authzid != found.name:
            raise SaslFailure.said(
                f"Authentication failed: Client requested an authorization id ({authzid}) that is different from"
                f" the token's principal name ({found.name})",
                f"the token is of {shown(found.name)}, not of {shown(authzid)}",
            )
        self.user, self.expires_ms = found.name, found.expires_ms
        return b""


def _parsed(message: bytes) -> tuple[str, str]:
    """Authorization id, "" for none, and token of a client's message. SaslFailure."""
    found = _FIRST.fullmatch(message.decode("latin-1"))
    if found is None:
        raise SaslFailure("malformed message of OAUTHBEARER")
    pairs = [each.partition("=") for each in found["pairs"].split("\x01")[:-1]]
    values = {key: value for key, _, value in pairs}
    if "auth" not in values:
        raise SaslFailure("a message of OAUTHBEARER without a token (auth)")
    bearer = _BEARER.fullmatch(values["auth"])
    if bearer is None or bearer["scheme"].lower() != "bearer":
        raise SaslFailure("a message of OAUTHBEARER without a bearer token")
    return found["authzid"] or "", bearer["token"]


class OAuthClient(Exchange):
    """The client's half."""

    def __init__(self, name: str, token: str) -> None:
        super().__init__(OAUTHBEARER)
        self._name = name
        self._token = token

    def first(self) -> bytes:
        return b"n,,\x01auth=Bearer " + self._token.encode() + b"\x01\x01"

    def evaluate(self, token: bytes) -> bytes | None:
        if token:  # why it is refused; the answer to this has an error code
            return _END
        self.user = self._name
        return None


# --- tokens without a signature (alg "none")


def unsecured_token(claims: Mapping[str, str], now_s: float) -> str:
    """A token that everybody can make, valid for `LIFETIME_S`. `claims`: sub, for example. `now_s`: since the epoch."""
    begin = floor(now_s)
    all_claims = {**claims, "iat": begin, "exp": begin + LIFETIME_S}
    parts = (_segment({"alg": "none"}), _segment(all_claims), "")
    return ".".join(parts)


def _segment(value: Mapping[str, Any]) -> str:
    """Base64 without - and _, which Kafka's reader of unsecured tokens does not know: of ASCII only these have them."""
    text = json.dumps(value, separators=(",", ":"))
    for letter in ">?~\x7f":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return b64encode(text.encode()).decode().rstrip("=")


class UnsecuredTokens:
    """Takes tokens without a signature, as OAuthBearerUnsecuredValidatorCallbackHandler does by its JAAS options."""

    is_signed: Literal[False] = False

    def __init__(self, options: Mapping[str, str]) -> None:
        """ValueError, beginning with the name of an option."""

        def option(name: str) -> str:
            return options.get(f"unsecuredValidator{name}", "").strip()

        self._principal_claim = option("PrincipalClaimName") or "sub"
        self._scope_claim = option("ScopeClaimName") or "scope"
        self._required = option("RequiredScope").split()
        bad = [each for each in self._required if not _SCOPE_ITEM.fullmatch(each)]
        if bad:
            raise ValueError(f"unsecuredValidatorRequiredScope: invalid scope value {bad[0]!r}")
        skew = option("AllowableClockSkewMs") or "0"
        if not (skew.isdecimal() and skew.isascii() and int(skew) < 2**31):
            raise ValueError("unsecuredValidatorAllowableClockSkewMs: expected 0 or more")
        self._skew_ms = int(skew)

    def validated(self, token: str, wall_ms: int, now_ms: int) -> Token:
        """What a token says at this time, in ms since the epoch. BadTokenError. `now_ms`: of the clock."""
        claims = _claims(token)
        scope = self._scope(claims)
        expires = _number(claims, "exp")
        if expires is None:
            raise BadTokenError("a token without an expiration time (exp)")
        name = claims.get(self._principal_claim)
        if not isinstance(name, str) or not name.strip():
            raise BadTokenError(f"a token without a principal ({self._principal_claim})")
        issued = _number(claims, "iat")
        # Down to whole ms, as which the clock is given.
        if issued is not None and floor(issued * 1000) > wall_ms + self._skew_ms:
            raise BadTokenError(f"the token of {shown(name)} was issued in the future (iat)")
        if wall_ms - self._skew_ms >= expires * 1000:
            raise BadTokenError(f"the token of {shown(name)} has expired (exp)")
        if issued is not None and expires <= issued:
            raise BadTokenError(f"the token of {shown(name)} expires before it was issued")
        for each in self._required:
            if each not in scope:
                required = f"[{', '.join(self._required)}]"
                raise BadTokenError(f"the token of {shown(name)} lacks the scope {each}", required)
        return Token(name, min(floor(expires * 1000 + 0.5), _MAX_LONG))

    def _scope(self, claims: Mapping[str, Any]) -> set[str]:
        """A text is one item of a scope, whatever is in it."""
        given = claims.get(self._scope_claim)
        items = [given] if isinstance(given, str) else given
        if items is not None and not isinstance(items, list):
            raise BadTokenError(f"a token whose scope ({self._scope_claim}) is no text and no list")
        return {each.strip() for each in items or () if each.strip()}


def _claims(token: str) -> Mapping[str, Any]:
    """The claims of a token with alg "none". BadTokenError."""
    parts = token.split(".")
    if len(parts) != 3 or ".." in token:
        raise BadTokenError("a token that is not three parts with dots between them")
    header, claims = _object(parts[0]), _object(parts[1])
    if header.get("alg") != "none":
        raise BadTokenError('a token whose alg is not "none": signed tokens need Kafka\'s handler')
    if parts[2]:
        raise BadTokenError('a token with a signature whose alg is "none"')
    return claims


def _object(part: str) -> Mapping[str, Any]:
    """A JSON object in base64, its values as Jackson's asText has them, of lists the items. BadTokenError."""
    try:
        text = b64decode(part + "=" * (-len(part) % 4), validate=True).decode()
        found, _ = json.JSONDecoder(parse_constant=_refuse).raw_decode(text.lstrip())
    except (Base64Error, ValueError, RecursionError):
        raise BadTokenError("a token that is not JSON in base64") from None
    if not isinstance(found, dict):
        return {}
    return {
        key: [_as_text(each) for each in value] if isinstance(value, list) else _scalar(value)
        for key, value in found.items()
    }


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _scalar(value: Any) -> str | int | float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else _as_text(value)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if isinstance(value, dict | list) else json.dumps(value)


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    """A claim that is a number; None: not in the token. BadTokenError."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and abs(value) < _MAX_LONG:
        return float(value)
    raise BadTokenError(f"a token whose {name} is not a number of seconds")

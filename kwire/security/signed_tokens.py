"""Signed tokens of OAUTHBEARER, by the library PyJWT; imported where a listener asks for them. No I/O.

Answers to org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler, whose tokens jose4j reads:
ValidatorAccessTokenValidator, ClaimValidationUtils, and jose4j's JwtConsumer, VerificationJwkSelector and
AudValidator. Which keys there are is the caller's business (`Keys`).

Invariants: the key decides whether an algorithm may be used with it, never the token alone: a token that is signed by
a public key as if that were a secret finds no key of its kind. No text of a `BadTokenError` has a token in it.
"""

from __future__ import annotations

import json

from jwt import PyJWK, PyJWS, PyJWTError, get_unverified_header

from kwire.security.mechanism import shown
from kwire.security.oauth import BadTokenError, Token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    from kwire.security.oauth_settings import SignedSettings

_KINDS = {"HS": "oct", "RS": "RSA", "PS": "RSA", "ES": "EC"}
"""`kty` of a key, by the first letters of an algorithm (RFC 7518)."""
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "ES256K": "secp256k1"}
_SIZES = ("256", "384", "512", "256K")
_OF_KINDS = {
    f"{first}{size}": kind
    for first, kind in _KINDS.items()
    for size in _SIZES
    if size != "256K" or first == "ES"
}
ALGORITHMS: Mapping[str, str] = {**_OF_KINDS, "EdDSA": "OKP"}
"""All that may sign, with the kind of their keys; "none" is not among them."""
_TEXTS = ("sub", "jti")


class Keys:
    """The keys of a JSON Web Key Set (RFC 7517)."""

    def __init__(self) -> None:
        self.known: Sequence[Mapping[str, Any]] = ()

    def missed(self, key_id: str | None, now_ms: int) -> None:
        """A token names a key that is not among them. `now_ms`: of the clock."""


def parse_keys(text: str | bytes) -> Sequence[Mapping[str, Any]]:
    """The keys of a key set. ValueError."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("too deep") from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise ValueError('a key set is an object with a list "keys"')
    return [each for each in keys if isinstance(each, dict)]


class SignedTokens:
    """Takes tokens that one of the keys has signed, and whose claims are as the settings ask."""

    is_signed: Literal[True] = True

    def __init__(self, settings: SignedSettings, keys: Keys) -> None:
        self.settings = settings
        self.keys = keys
        self._signatures = PyJWS(options={"enforce_minimum_key_length": True})
        self._made: dict[tuple[int, str], PyJWK] = {}
        self._of: Sequence[Mapping[str, Any]] = ()
        """The key set of `_made`."""

    def validated(self, token: str, wall_ms: int, now_ms: int) -> Token:
        """What a token says at this time, in ms since the epoch. BadTokenError. `now_ms`: of the clock."""
        if len([part for part in token.split(".") if part]) != 3 or token.count(".") != 2:
            raise BadTokenError("a token without three parts: header, claims, signature")
        claims = self._verified(token, now_ms)
        self._check_times(claims, wall_ms // 1000)
        self._check_audience(claims)
        issuer = self.settings.issuer
        if issuer is not None and claims.get("iss") != issuer:
            raise BadTokenError(f"the token's issuer (iss) is not {issuer}")
        for each in _TEXTS:
            if not isinstance(claims.get(each, ""), str):
                raise BadTokenError(f"the token's {each} is no text")
        self._check_scope(claims.get(self.settings.scope_claim))
        name = claims.get(self.settings.sub_claim)
        if not isinstance(name, str) or not name.strip():
            raise BadTokenError(f"the token has no principal ({self.settings.sub_claim})")
        expires = _seconds(claims, "exp")
        assert expires is not None  # _check_times
        return Token(name.strip(), expires * 1000)

    # --- the signature

    def _verified(self, token: str, now_ms: int) -> Mapping[str, Any]:
        """The claims of a token whose signature is right. BadTokenError."""
        try:
            header = get_unverified_header(token)
        except (PyJWTError, ValueError, RecursionError):
            raise BadTokenError("a token that is not JSON in base64") from None
        algorithm = header.get("alg")
        kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
        if kind is None:
            raise BadTokenError(f"no token may be signed by alg {shown(str(algorithm))}")
        assert isinstance(algorithm, str)
        key = self._key(algorithm, kind, header.get("kid"), now_ms)
        try:
            found = self._signatures.decode_complete(token, key, algorithms=[algorithm])
        except (PyJWTError, ValueError, TypeError) as error:
            raise BadTokenError(f"the token's signature is not right: {error}") from None
        return _json_object(found["payload"])

    def _key(self, algorithm: str, kind: str, key_id: str | None, now_ms: int) -> PyJWK:
        """The first key that may have signed a token. BadTokenError."""
        known = self.keys.known
        if known is not self._of:
            self._of, self._made = known, {}
        for number, key in enumerate(known):
            if not _suits(key, algorithm, kind, key_id):
                continue
            place = number, algorithm
            if place not in self._made:
                try:
                    self._made[place] = PyJWK(dict(key), algorithm)
                except (PyJWTError, ValueError, TypeError, KeyError):
                    continue  # as jose4j leaves out keys that it cannot read
            return self._made[place]
        self.keys.missed(key_id, now_ms)
        named = "" if key_id is None else f" {shown(key_id)}"
        raise BadTokenError(f"there is no key{named} for alg {algorithm}")

    # --- the claims

    def _check_times(self, claims: Mapping[str, Any], now_s: int) -> None:
        skew = self.settings.skew_s
        expires, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None:
            raise BadTokenError("the token has no expiration time (exp)")
        if issued is None:
            raise BadTokenError("the token has no time of issue (iat)")
        if now_s - skew >= expires:
            raise BadTokenError("the token has expired (exp)")
        if expires < issued or (begins is not None and expires < begins):
            raise BadTokenError("the token expires before it was issued, or before it begins")
        if begins is not None and now_s + skew < begins:
            raise BadTokenError("the token is not valid yet (nbf)")
        if min(expires, issued) < 0:
            raise BadTokenError("the token has a negative time")

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        """A token for somebody is refused where nobody is expected, too."""
        expected = self.settings.audiences
        found = claims.get("aud")
        if found is None:
            if expected:
                raise BadTokenError("the token has no audience (aud)")
            return
        names = [found] if isinstance(found, str) else found
        if not isinstance(names, list) or not any(
            isinstance(each, str) and each in expected for each in names
        ):
            wanted = ", ".join(expected) or "nobody: sasl.oauthbearer.expected.audience"
            raise BadTokenError(f"the token's audience (aud) is not {wanted}")

    def _check_scope(self, scope: object) -> None:
        items = [scope] if isinstance(scope, str) else scope
        if not isinstance(items, list):
            return
        names = [each.strip() if isinstance(each, str) else "" for each in items]
        if not all(names) or len(set(names)) < len(names):
            claim = self.settings.scope_claim
            raise BadTokenError(f"the token's scope ({claim}) has an empty item, or one twice")


def _suits(key: Mapping[str, Any], algorithm: str, kind: str, key_id: object) -> bool:
    """Whether a key may have signed a token of this algorithm and key id."""
    if key.get("kty") != kind or (key_id is not None and key.get("kid") != key_id):
        return False
    if key.get("alg", algorithm) != algorithm or key.get("use", "sig") != "sig":
        return False
    curve = _CURVES.get(algorithm)
    return "verify" in key.get("key_ops", ("verify",)) and curve in (None, key.get("crv"))


def _json_object(data: bytes) -> Mapping[str, Any]:
    """A JSON object in which each name occurs once. BadTokenError."""
    try:
        found = json.loads(data, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError):
        raise BadTokenError("a token whose claims are not JSON") from None
    if not isinstance(found, dict):
        raise BadTokenError("a token whose claims are no object")
    return found


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A claim that is a time, in whole seconds; None: not in the token. BadTokenError."""
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) < 2**53:
        raise BadTokenError(f"the token's {name} is not a number of seconds")
    return int(value)

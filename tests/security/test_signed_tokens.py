"""Signed tokens of OAUTHBEARER: signatures, claims, and the keys that a node reads and fetches again."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from oauth_kit import INVALID, JAAS, MODULE, NOW_S, bearer, guarded, part, shaken, unsecured

from kwire import Cluster
from kwire.errors import KwireError
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock, Timers
from kwire.security.oauth import BadTokenError
from kwire.security.settings import listener_settings
from kwire.server.errors import SettingsError

jwt = pytest.importorskip("jwt", reason="PyJWT is not installed yet: make setup")
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
HANDLER_KEY = "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class"
URL = "sasl.oauthbearer.jwks.endpoint.url"
SECRET = b"a secret that has at least thirty-two bytes"
RSA_KEY = rsa.generate_private_key(65537, 2048)
PRIVATE: dict[str, Any] = {
    "rsa": RSA_KEY,
    "enc": RSA_KEY,
    "other": rsa.generate_private_key(65537, 2048),
    "short": rsa.generate_private_key(65537, 1024),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "oct": SECRET,
}


def key_set(*names: str) -> str:
    rs, es = jwt.algorithms.RSAAlgorithm, jwt.algorithms.ECAlgorithm
    found: list[Any] = []
    for name in names:
        key = PRIVATE[name]
        if isinstance(key, bytes):
            found.append({"kty": "oct", "k": urlsafe_b64encode(key).decode().rstrip("=")})
        else:
            kind = rs if isinstance(key, rsa.RSAPrivateKey) else es
            found.append(kind.to_jwk(key.public_key(), as_dict=True))
        found[-1]["kid"] = name
        found[-1].pop("key_ops", None)
        if name == "enc":
            found[-1]["use"] = "enc"
    return json.dumps({"keys": [{"kty": "RSA", "kid": "bad", "n": "", "e": ""}, 7, *found]})


def signed(name: str = "rsa", algorithm: str = "RS256", kid: Any = "", /, **more: Any) -> str:
    claims = {"sub": "alice", "exp": NOW_S + 100, "iat": NOW_S - 10, "iss": "me", "aud": "kafka"}
    claims = {key: value for key, value in {**claims, **more}.items() if value is not None}
    headers = {} if kid is None else {"kid": kid or name}
    return str(jwt.encode(claims, PRIVATE[name], algorithm, headers=headers))


class Known:
    """Keys that are there from the beginning."""

    def __init__(self, *names: str) -> None:
        self.known = json.loads(key_set(*names))["keys"][2:]
        self.asked: list[str | None] = []

    def missed(self, key_id: str | None, now_ms: int) -> None:
        self.asked.append(key_id)


def rules(**keys: str) -> Any:
    """What takes tokens by these keys of sasl.oauthbearer."""
    values = {"sasl.enabled.mechanisms": "OAUTHBEARER", JAAS: f"{MODULE};", HANDLER_KEY: HANDLER}
    for name, text in {"clock_skew_seconds": "5", "expected_issuer": "me", **keys}.items():
        values[f"sasl.oauthbearer.{name.replace('_', '.')}"] = text
    tokens: Any = listener_settings(BrokerConfig({**values, URL: "file:///k"}), "SASL").tokens
    tokens.keys = Known("rsa", "short", "ec", "oct", "enc")
    return tokens


@pytest.fixture
def usual() -> Any:
    return rules(expected_audience="kafka, others")


def taken(tokens: Any, token: str) -> Any:
    """The name; False: it is refused."""
    try:
        return tokens.validated(token, NOW_S * 1000 + 999, 0).name
    except BadTokenError as error:
        assert error.answer() == INVALID.decode() and token[:30] not in str(error)
        return False


def test_tokens_that_are_taken(usual: Any) -> None:
    assert usual.validated(signed(), NOW_S * 1000, 0).expires_ms == (NOW_S + 100) * 1000
    for token in (
        signed("rsa", "RS256", None),
        signed("rsa", "PS384"),
        signed("ec", "ES256"),
        signed("ec", "ES256", None),
        signed("oct", "HS256"),
        signed(aud=["x", "others"]),
        signed(exp=NOW_S - 4),
        signed(nbf=NOW_S + 5),
        signed(iat=NOW_S + 50),
        signed(scope="a b"),
        signed(scope=["a", "b"]),
        signed(scope=7),
        signed(sub=" alice "),
    ):
        assert taken(usual, token) == "alice"


def refused_tokens() -> Iterator[str]:
    right = signed()
    head, claims, signature = right.split(".")
    public = json.loads(key_set("rsa"))["keys"][2]["n"].encode()
    yield unsecured(iss="me", aud="kafka")
    yield f"{part({'alg': 'none'})}.{claims}.{signature}"
    yield f"{part({'alg': 'none', 'kid': 'rsa'})}.{claims}."
    yield f"{part({'alg': ['RS256'], 'kid': 'rsa'})}.{claims}.{signature}"
    yield f"{part({'kid': 'rsa'})}.{claims}.{signature}"
    yield f"{head}.{claims}."
    yield f"{head}.{claims}"
    yield f"{head}.{claims}.{signature[:-4]}"
    yield f"{head}.{part({'sub': 'admin', 'exp': NOW_S + 9, 'iat': NOW_S, 'iss': 'me'})}.{signature}"
    yield f"{head}.{claims}.{signature}.x"
    yield "x.y.z"
    yield signed("other", "RS256", "rsa")
    yield signed("other", "RS256", "other")
    yield signed("enc", "RS256", "enc")
    yield signed("short", "RS256")
    yield signed("ec", "ES256", "rsa")
    yield signed("oct", "HS256", "rsa")
    yield jwt.encode({"sub": "a"}, public, "HS256", headers={"kid": "rsa"})
    yield signed("oct", "HS512")
    yield signed("rsa", "RS256", "bad")
    yield from (signed(exp=NOW_S - 5), signed(nbf=NOW_S + 6), signed(exp=None), signed(iat=None))
    yield from (signed(exp="soon"), signed(exp=NOW_S + 5, iat=NOW_S + 20), signed(iat=-5))
    yield signed(exp=NOW_S + 5, nbf=NOW_S + 6)
    yield from (signed(aud=None), signed(aud="somebody"), signed(aud=["x"]), signed(aud=7))
    yield from (signed(iss="you"), signed(iss=None))
    yield from (signed(sub=None), signed(sub=" "), signed(sub=7), signed(jti=7))
    yield from (signed(scope=""), signed(scope=["a", "a"]), signed(scope=["a", " "]))
    twice = f'{{"sub":"a","sub":"b","exp":{NOW_S + 9},"iat":{NOW_S},"iss":"me","aud":"kafka"}}'
    yield jwt.PyJWS().encode(twice.encode(), RSA_KEY, "RS256", {"kid": "rsa"})


def test_tokens_that_are_refused(usual: Any) -> None:
    for token in refused_tokens():
        assert taken(usual, token) is False, token


def test_no_bit_of_a_token_can_change(usual: Any) -> None:
    right, random = signed(), Random(1)
    for _ in range(300):
        place = random.randrange(len(right) - 1)  # the last letter has bits that are not used
        letter = chr(ord(right[place]) ^ 1 << random.randrange(7))
        assert taken(usual, right[:place] + letter + right[place + 1 :]) is False, place


def test_nobody_is_expected_where_no_audience_is_named() -> None:
    tokens = rules()
    assert taken(tokens, signed()) is False
    assert taken(tokens, signed(aud=None)) == "alice"


def test_names_of_claims() -> None:
    tokens = rules(sub_claim_name="who", scope_claim_name="may", expected_issuer=" ")
    assert taken(tokens, signed(aud=None, who="w", scope=["", ""], iss="you")) == "w"
    assert taken(tokens, signed(aud=None, who="w", may="")) is False
    assert taken(tokens, signed(aud=None)) is False


def test_an_unknown_key_is_looked_for(usual: Any) -> None:
    assert taken(usual, signed()) == "alice"
    assert taken(usual, signed("other", "RS256", "new")) is False
    assert usual.keys.asked == ["new"]
    usual.keys.known = Known("other").known
    assert taken(usual, signed()) is False
    assert taken(usual, signed("other")) == "alice"


def test_signed_tokens_at_a_listener(tmp_path: Path) -> None:
    """Whoever comes with an unsecured one is refused, and the log says why."""
    keys = {HANDLER_KEY: HANDLER, URL: "file:///k"}
    broker = guarded(**keys, connection_failed_authentication_delay_ms="0")
    tokens: Any = broker.gate.listeners["SASL"].tokens
    tokens.keys = Known("rsa")
    client = shaken(broker)
    assert client.authenticate(bearer(unsecured())).auth_bytes == INVALID
    client.authenticate(b"\x01")
    assert client.closed is not None and "without three parts" in client.closed
    client = shaken(broker)
    answer = client.authenticate(bearer(signed(aud=None)))
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 100_000)
    assert client.session.principal == "User:alice"


# --- where keys come from


class Server(BaseHTTPRequestHandler):
    contents: bytes | None = b""
    asked = 0
    answered = threading.Semaphore(0)

    def do_GET(self) -> None:
        cls = type(self)
        cls.asked += 1
        self.send_response(500 if cls.contents is None else 200)
        self.end_headers()
        self.wfile.write(cls.contents or b"")
        cls.answered.release()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, Any]]:
    handler: Any = type("Handler", (Server,), {"answered": threading.Semaphore(0)})
    handler.contents = key_set("rsa").encode()
    http = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/keys", handler
    http.shutdown()
    http.server_close()


def keys_at(url: str, clock: Clock, timers: Timers) -> Any:
    from kwire.server.access.jwks import Jwks

    retry = {"jwks_endpoint_retry_backoff_ms": "1", "jwks_endpoint_retry_backoff_max_ms": "50"}
    settings = rules(jwks_endpoint_refresh_ms="60000", **retry).settings
    settings.url = url
    return Jwks(settings, "SASL", 1, timers, clock)


def fetched(keys: Any) -> None:
    keys._fetching.join(10)
    assert not keys._fetching.is_alive()


def test_keys_are_fetched_again_from_time_to_time(server: tuple[str, Any]) -> None:
    url, handler = server
    clock, timers = Clock(now_ms=5, wall_ms=NOW_S * 1000), Timers()
    keys = keys_at(url, clock, timers)
    asyncio.run(keys.load())
    assert [each.get("kid") for each in keys.known] == ["bad", "rsa"]
    handler.contents = key_set("ec").encode()
    timers.fire(60_004)
    assert handler.asked == 1
    clock.now_ms = 60_005
    timers.fire(clock.now_ms)
    fetched(keys)
    assert [each.get("kid") for each in keys.known] == ["bad", "ec"]
    assert timers.next_deadline_ms() == 120_005


def test_keys_from_before_stay_when_the_server_fails(
    server: tuple[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    url, handler = server
    clock, timers = Clock(now_ms=0, wall_ms=0), Timers()
    keys = keys_at(f"{url}?token=hush", clock, timers)
    asyncio.run(keys.load())
    for contents in (None, b"{}", b"x" * (600 * 1024)):
        handler.contents = contents
        asked = handler.asked
        keys._fetch()
        fetched(keys)
        assert handler.asked > asked + 1  # tried again
        assert [each.get("kid") for each in keys.known] == ["bad", "rsa"]
    assert f"cannot be read from {url}: " in caplog.text and "hush" not in caplog.text


def test_an_unknown_key_lets_them_be_fetched_once_a_minute(server: tuple[str, Any]) -> None:
    url, handler = server
    keys = keys_at(url, Clock(now_ms=0, wall_ms=0), Timers())
    asyncio.run(keys.load())
    for key_id, now_ms, expected in (
        ("new", 0, 2),
        ("new", 59_999, 2),
        ("new", 60_000, 3),
        ("x" * 1001, 60_000, 3),
        (None, 60_000, 3),
        ("newer", 60_000, 4),
    ):
        keys.missed(key_id, now_ms)
        fetched(keys)
        assert handler.asked == expected, (key_id, now_ms)
    for number in range(40):
        keys.missed(str(number), 60_000)
    assert len(keys._asked) == 16
    fetched(keys)


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "k ü.json"
    path.write_text(key_set("rsa"))
    timers = Timers()
    keys = keys_at(path.as_uri(), Clock(now_ms=0, wall_ms=0), timers)
    asyncio.run(keys.load())
    keys.missed("new", 0)
    assert len(keys.known) == 2 and timers.next_deadline_ms() is None and keys._fetching is None


@pytest.mark.parametrize("contents", [None, "{", "[]", '{"keys": 1}', "[" * 100_000])
def test_a_node_without_keys_does_not_start(tmp_path: Path, contents: str | None) -> None:
    path = tmp_path / "keys.json"
    if contents is not None:
        path.write_text(contents)
    keys = keys_at(f"file:{path}", Clock(now_ms=0, wall_ms=0), Timers())
    with pytest.raises(SettingsError, match=r"url=file:.*: the keys cannot be read: .") as caught:
        asyncio.run(keys.load())
    assert "\n" not in str(caught.value)


# --- clusters


def config_of(url: str) -> dict[str, str]:
    prefix = "listener.name.sasl_plaintext.oauthbearer."
    return {
        f"{prefix}sasl.server.callback.handler.class": HANDLER,
        f"{prefix}{URL}": url,
        "sasl.oauthbearer.expected.audience": "kafka",
    }


@pytest.mark.timeout(60)
def test_a_cluster_that_takes_signed_tokens(server: tuple[str, Any]) -> None:
    import time

    from confluent_kafka import Producer
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    def token() -> str:
        return signed(exp=int(time.time()) + 60)

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token()

    with Cluster(sasl="oauthbearer", topics=["orders"], config=config_of(server[0])) as cluster:
        own = {"oauth_cb": lambda _: (token(), time.time() + 60)}
        producer = Producer({**cluster.client_config("librdkafka"), **own})
        producer.produce("orders", b"one")
        assert producer.flush(10) == 0
        config = cluster.client_config("kafka-python")
        other = KafkaProducer(**config, sasl_oauth_token_provider=Provider())
        assert other.send("orders", b"two").get(10).offset == 1
        other.close()
        with pytest.raises(KwireError, match="kwire signs no token of 'alice'"):
            cluster.client_config("java", "alice")


def test_a_cluster_whose_keys_are_not_there_does_not_start() -> None:
    url = "http://127.0.0.1:1/keys"
    with pytest.raises(KwireError, match="the keys cannot be read"):
        Cluster(sasl="oauthbearer", config=config_of(url)).start()

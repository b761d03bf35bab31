"""OAUTHBEARER in bytes: tokens, and what kwire and Apache Kafka 3.9.1 (REAL=1) make of them; stock clients."""

import base64
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer

from compat_tests import brokers
from compat_tests.test_security import CLOSED, Wire, brokers_known, shake
from kwire.protocol.schemas.sasl import SaslAuthenticateRequest
from kwire.security.client import Credentials, client_config

jwt = pytest.importorskip("jwt", reason="PyJWT is not installed yet: make setup")
from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: E402

pytestmark = pytest.mark.timeout(120)

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
OLD_HANDLER = HANDLER.replace(".OAuthBearerV", ".secured.OAuthBearerV")
LISTENERS = ("PLAINTEXT", "FREE", "SCOPED", "SIGNED", "OPEN")
INVALID = (0, b'{"status":"invalid_token"}', "")
OK = (0, b"", "")
FAILED = (
    58,
    b"",
    "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER",
)
SECRET = b"a secret that has at least thirty-two bytes"
KEYS: dict[str, Any] = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "other": rsa.generate_private_key(65537, 2048),
    "short": rsa.generate_private_key(65537, 1024),
    "ec": ec.generate_private_key(ec.SECP256R1()),
}


def jwks() -> str:
    """The key set: without the key `other`."""
    rs, es = jwt.algorithms.RSAAlgorithm, jwt.algorithms.ECAlgorithm
    found = [
        {**rs.to_jwk(KEYS["rsa"].public_key(), as_dict=True), "kid": "rsa", "use": "sig"},
        {**rs.to_jwk(KEYS["short"].public_key(), as_dict=True), "kid": "short"},
        {**es.to_jwk(KEYS["ec"].public_key(), as_dict=True), "kid": "ec", "alg": "ES256"},
        {"kty": "oct", "kid": "oct", "k": base64.urlsafe_b64encode(SECRET).decode().rstrip("=")},
        {**rs.to_jwk(KEYS["other"].public_key(), as_dict=True), "kid": "enc", "use": "enc"},
        {"kty": "new", "kid": "new"},
    ]
    for each in found:
        each.pop("key_ops", None)
    return json.dumps({"keys": found})


def keys_of(folder: Path, ports: dict[str, int]) -> dict[str, str]:
    path = folder / "jwks.json"
    path.write_text(jwks())
    found = {
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(
            f"{name}:SASL_PLAINTEXT" if name in LISTENERS[1:] else f"{name}:PLAINTEXT"
            for name in (*LISTENERS, "CONTROLLER")
        ),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.clock.skew.seconds": "60",
        "sasl.oauthbearer.expected.issuer": "me",
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
    }
    options = {
        "FREE": "",
        "SCOPED": ' unsecuredValidatorPrincipalClaimName="who" unsecuredValidatorRequiredScope="a b"'
        ' unsecuredValidatorScopeClaimName="may" unsecuredValidatorAllowableClockSkewMs="60000"'
        ' unsecuredLoginStringClaim_sub="broker"',
    }
    for name in LISTENERS[1:]:
        prefix = f"listener.name.{name.lower()}.oauthbearer"
        found[f"{prefix}.sasl.jaas.config"] = f"{MODULE}{options.get(name, '')};"
        if name not in options:
            own = HANDLER if name == "SIGNED" else OLD_HANDLER
            found[f"{prefix}.sasl.server.callback.handler.class"] = own
            found[f"{prefix}.sasl.oauthbearer.jwks.endpoint.url"] = f"file:{path}"
    found["listener.name.signed.sasl.oauthbearer.expected.audience"] = "kafka,others"
    found["listener.name.open.oauthbearer.connections.max.reauth.ms"] = "60000"
    return found


class KwireWithTokens(brokers.KwireBroker):
    ports: dict[str, int]

    def _command(self) -> list[str]:
        self.ports = {name: brokers.free_port() for name in LISTENERS} | {"PLAINTEXT": self.port}
        self.config = keys_of(self.folder, self.ports)
        command = super()._command()
        at = command.index("--port")
        return command[:at] + command[at + 2 :]


class KafkaWithTokens(brokers.RealKafka):
    ports: dict[str, int]

    def _properties(self, controller_port: int) -> str:
        self.ports = {name: brokers.free_port() for name in LISTENERS} | {"PLAINTEXT": self.port}
        keys = keys_of(self.folder, self.ports)
        own = keys["listeners"]
        keys["listeners"] = f"{own},CONTROLLER://127.0.0.1:{controller_port}"
        self.config = {**keys, "advertised.listeners": own}
        return super()._properties(controller_port)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    real = os.environ.get("REAL") == "1"
    broker = (KafkaWithTokens if real else KwireWithTokens)(tmp_path_factory.mktemp("oauth"))
    if not real:
        broker.port = brokers.free_port()
    broker.start()
    yield broker
    broker.stop()


def ask(wire: Wire, data: bytes, version: int = 2) -> Any:
    answer = wire.ask(SaslAuthenticateRequest(auth_bytes=data), version)
    if isinstance(answer, str):
        return answer
    return answer.error_code, bytes(answer.auth_bytes), answer.error_message


def said(guarded: Any, listener: str, data: bytes | str) -> Any:
    """The answer to a message, or to one with this token."""
    wire = Wire(guarded.ports[listener])
    assert shake(wire, "OAUTHBEARER") == (0, ["OAUTHBEARER"])
    found = ask(wire, data if isinstance(data, bytes) else bearer(data))
    wire.close()
    return found


def bearer(token: str, more: str = "", authzid: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {token}\x01{more}\x01".encode()


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.b64encode(data).decode().rstrip("=")


def unsecured(claims: Any = None, header: Any = None, tail: str = "", /, **more: Any) -> str:
    now = time.time()
    usual = {"sub": "alice", "exp": now + 100, "iat": now - 10, **more}
    whole = usual if claims is None else claims
    return f"{part(header or {'alg': 'none'})}.{part(whole)}.{tail}"


def signed(
    name: str = "rsa", algorithm: str = "RS256", kid: str | None = "", /, **more: Any
) -> str:
    """A token of this key and, unless `kid` is another one, with its name."""
    now = int(time.time())
    claims = {"sub": "alice", "exp": now + 100, "iat": now - 10, "iss": "me", "aud": "kafka"}
    claims = {k: v for k, v in {**claims, **more}.items() if v is not None}
    headers = {} if kid is None else {"kid": kid or name}
    key = SECRET if name == "oct" else KEYS[name]
    return str(jwt.encode(claims, key, algorithm, headers=headers))


# --- the exchange


def test_a_log_in_and_another_token_after_a_refusal(guarded: Any) -> None:
    wire = Wire(guarded.ports["FREE"])
    assert shake(wire, "OAUTHBEARER") == (0, ["OAUTHBEARER"])
    assert ask(wire, bearer("x")) == INVALID
    assert ask(wire, bearer(unsecured())) == OK
    assert brokers_known(wire) == 1
    wire.close()


def test_the_last_byte_of_a_refused_client(guarded: Any) -> None:
    wire = Wire(guarded.ports["FREE"])
    shake(wire, "OAUTHBEARER")
    assert ask(wire, bearer("x")) == INVALID
    assert ask(wire, b"\x01") == (58, b"", '{"status":"invalid_token"}')
    assert wire.closes() == CLOSED


def test_tokens_without_headers(guarded: Any) -> None:
    wire = Wire(guarded.ports["FREE"])
    assert shake(wire, "OAUTHBEARER", version=0) == (0, ["OAUTHBEARER"])
    assert wire.raw(bearer("x")) == INVALID[1]
    assert wire.raw(b"\x01") == CLOSED
    wire = Wire(guarded.ports["FREE"])
    assert shake(wire, "OAUTHBEARER", version=0) == (0, ["OAUTHBEARER"])
    assert wire.raw(bearer(unsecured())) == b""
    assert brokers_known(wire) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer {}\x01",
        b"n,,auth=Bearer {}\x01\x01",
        b"y,,\x01auth=Bearer {}\x01\x01",
        b"n,,\x01auth={}\x01\x01",
        b"n,,\x01auth=Bearer {}\x01other\x01\x01",
        b"n,,\x01host=h\x01\x01",
        b"n,,\x01auth=Bearer {}\x01a1=b\x01\x01",
        b"n,,\x01auth=Bearer {}\x01a=\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,a=,\x01auth=Bearer {}\x01\x01",
    ],
)
def test_malformed_messages(guarded: Any, data: bytes) -> None:
    assert said(guarded, "FREE", data.replace(b"{}", unsecured().encode())) == FAILED


def test_another_scheme_has_no_good_answer(guarded: Any) -> None:
    """Kafka's own fails by an exception in the text of its message."""
    data = b"n,,\x01auth=Basic abc\x01\x01"
    assert said(guarded, "FREE", data) in (FAILED, CLOSED)


@pytest.mark.parametrize(
    "data",
    [
        bearer("{}", "port=9092\x01host=h\x01"),
        b"n,,\x01host=h\x01auth=BEARER  {}\x01\x01",
        b"n,,\x01auth=Basic x\x01auth=Bearer {}\x01\x01",
        bearer("{}", authzid="a=alice"),
        bearer("{}", "traceId=a b~\t\x01"),
    ],
)
def test_extensions_and_an_authorization_id(guarded: Any, data: bytes) -> None:
    assert said(guarded, "FREE", data.replace(b"{}", unsecured().encode())) == OK


def test_a_token_of_somebody_else(guarded: Any) -> None:
    text = (
        "Authentication failed: Client requested an authorization id (bob) that is different from"
        " the token's principal name (alice)"
    )
    assert said(guarded, "FREE", bearer(unsecured(), authzid="a=bob")) == (58, b"", text)


# --- unsecured tokens


def test_unsecured_tokens_that_are_taken(guarded: Any) -> None:
    now = time.time()
    for token in (
        unsecured(),
        unsecured(iat=int(now)),
        unsecured({"sub": "a", "exp": now + 10}),
        unsecured(
            {"sub": "a", "exp": int(now) + 10, "scope": ["x", ""], "aud": "z", "nbf": now + 9}
        ),
        unsecured({"sub": 5 > 4, "exp": now + 10}),
        unsecured({"sub": None, "exp": now + 10}),
        unsecured(scope="a b"),
        unsecured(None, {"alg": "none", "typ": "JWT"}),
        unsecured(b'{"sub":"a","sub":"b","exp":9999999999} more'),
    ):
        assert said(guarded, "FREE", token) == OK, token


def test_unsecured_tokens_that_are_refused(guarded: Any) -> None:
    now = time.time()
    whole = unsecured()
    for token in (
        whole.rstrip("."),
        whole + ".",
        "." + whole,
        unsecured(None, None, "eA"),
        unsecured(exp=now - 1),
        unsecured(iat=now + 60),
        unsecured(iat=now + 60, exp=now + 50),
        unsecured({"sub": "a"}),
        unsecured({"exp": now + 10}),
        unsecured({"sub": " ", "exp": now + 10}),
        unsecured({"sub": {}, "exp": now + 10}),
        unsecured({"sub": ["a"], "exp": now + 10}),
        unsecured({"sub": 7, "exp": now + 10}),
        unsecured(exp=str(now + 10)),
        unsecured(iat="now"),
        unsecured(scope=7),
        unsecured([1]),
        unsecured(b"{"),
        unsecured(b""),
        unsecured(None, {"alg": "None"}),
        unsecured(None, {"alg": "HS256"}),
        signed(),
        f"{part({'alg': 'none'})}.e.",
        whole.replace(".", "..", 1),
    ):
        assert said(guarded, "FREE", token) == INVALID, token


def test_letters_of_base64(guarded: Any) -> None:
    """A name whose base64 has / and +, in both alphabets."""
    claims = json.dumps({"sub": "??~~>>", "exp": 9999999999}).encode()
    plain = base64.b64encode(b" " + claims).decode().rstrip("=")
    plain = plain if {"/", "+"} & set(plain) else base64.b64encode(claims).decode().rstrip("=")
    assert {"/", "+"} & set(plain)
    url = plain.replace("/", "_").replace("+", "-")
    head = part({"alg": "none"})
    assert said(guarded, "FREE", f"{head}.{plain}.") == OK
    assert said(guarded, "FREE", f"{head}.{url}.") == INVALID


def test_options_of_unsecured_tokens(guarded: Any) -> None:
    now = time.time()
    usual = {"who": "alice", "exp": now + 10, "iat": now - 9, "may": ["b", " a ", "c"]}
    lacks = (0, b'{"status":"insufficient_scope", "scope":"[a, b]"}', "")
    for change, answer in (
        ({}, OK),
        ({"iat": now + 30, "exp": now + 40}, OK),
        ({"iat": now - 90, "exp": now - 30}, OK),
        ({"iat": now - 90, "exp": now - 61}, INVALID),
        ({"may": "a b"}, lacks),
        ({"may": ["a"]}, lacks),
        ({"may": None}, lacks),
        ({"who": ""}, INVALID),
    ):
        assert said(guarded, "SCOPED", unsecured({**usual, **change})) == answer, change
    del usual["may"]
    assert said(guarded, "SCOPED", unsecured(usual)) == lacks


# --- signed tokens


def test_signed_tokens_that_are_taken(guarded: Any) -> None:
    now = int(time.time())
    for token in (
        signed(),
        signed("rsa", "RS256", None),
        signed("rsa", "PS384"),
        signed("rsa", "RS512"),
        signed("ec", "ES256"),
        signed("ec", "ES256", None),
        signed("oct", "HS256"),
        signed(aud=["x", "others"]),
        signed(exp=now - 20, iat=now - 90),
        signed(nbf=now + 60),
        signed(iat=now + 50),
        signed(scope="a b"),
        signed(scope=["a", "b"]),
        signed(scope=7),
        signed(sub=" alice "),
    ):
        assert said(guarded, "SIGNED", token) == OK, jwt.decode_complete(
            token, options={"verify_signature": False}
        )


def test_signed_tokens_that_are_refused(guarded: Any) -> None:
    now = int(time.time())
    right = signed()
    head, claims, signature = right.split(".")
    public = json.loads(jwks())["keys"][0]["n"].encode()
    for token in (
        unsecured(iss="me", aud="kafka"),
        f"{part({'alg': 'none'})}.{claims}.{signature}",
        f"{part({'alg': 'none', 'kid': 'rsa'})}.{claims}.",
        f"{head}.{claims}.",
        f"{head}.{claims}",
        f"{head}.{claims}.{signature[:-4]}",
        f"{head}.{part({'sub': 'admin', 'exp': now + 9, 'iat': now, 'iss': 'me', 'aud': 'kafka'})}.{signature}",
        f"{head}.{claims}.{signature}.x",
        signed("other", "RS256", "rsa"),
        signed("other", "RS256", "other"),
        signed("other", "RS256", "enc"),
        signed("short", "RS256"),
        signed("ec", "ES256", "rsa"),
        signed("oct", "HS256", "rsa"),
        jwt.encode({"sub": "a"}, public, "HS256", headers={"kid": "rsa"}),
        signed("oct", "HS512"),
        signed(exp=now - 60, iat=now - 90),
        signed(nbf=now + 120),
        signed(exp=None),
        signed(iat=None),
        signed(exp="soon"),
        signed(exp=now + 5, iat=now + 20),
        signed(aud=None),
        signed(aud="somebody"),
        signed(aud=["x"]),
        signed(iss="you"),
        signed(iss=None),
        signed(sub=None),
        signed(sub=" "),
        signed(sub=7),
        signed(scope=""),
        signed(scope=["a", "a"]),
        signed(scope=["a", " "]),
        signed(jti=7),
    ):
        assert said(guarded, "SIGNED", token) == INVALID, token


def test_an_audience_where_none_is_expected(guarded: Any) -> None:
    assert said(guarded, "OPEN", signed(aud=None)) == OK
    assert said(guarded, "OPEN", signed()) == INVALID


def test_how_long_a_session_lasts(guarded: Any) -> None:
    """As the token, or connections.max.reauth.ms if that is shorter."""
    now = int(time.time())
    for listener, token, least, most in (
        ("FREE", unsecured(exp=now + 100), 90_000, 100_000),
        ("SIGNED", signed(exp=now + 100), 90_000, 100_000),
        ("SIGNED", signed(exp=now - 2), 0, 0),
        ("OPEN", signed(aud=None, exp=now + 100), 60_000, 60_000),
        ("OPEN", signed(aud=None, exp=now + 20), 10_000, 20_000),
    ):
        wire = Wire(guarded.ports[listener])
        shake(wire, "OAUTHBEARER")
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=bearer(token)), 2)
        assert least <= answer.session_lifetime_ms <= most, (listener, token)
        wire.close()


def test_a_session_of_a_token_that_has_expired(guarded: Any) -> None:
    wire = Wire(guarded.ports["SIGNED"])
    shake(wire, "OAUTHBEARER")
    assert ask(wire, bearer(signed(exp=int(time.time()) - 2))) == OK
    time.sleep(0.05)
    assert brokers_known(wire) == CLOSED


def test_a_log_in_again_keeps_the_principal(guarded: Any) -> None:
    wire = Wire(guarded.ports["FREE"])
    shake(wire, "OAUTHBEARER")
    assert ask(wire, bearer(unsecured(exp=time.time() + 3))) == OK
    time.sleep(1.1)  # Kafka takes no log-in again sooner
    assert shake(wire, "OAUTHBEARER") == (0, ["OAUTHBEARER"])
    assert ask(wire, bearer(unsecured(exp=time.time() + 3))) == OK
    assert brokers_known(wire) == 1
    time.sleep(1.1)
    assert shake(wire, "OAUTHBEARER") == (0, ["OAUTHBEARER"])
    code, _, text = ask(wire, bearer(unsecured(sub="bob")))
    assert code == 58 and text.startswith("Cannot change principals during re-authentication")
    assert wire.closes() == CLOSED


# --- stock clients


def quiet_config(guarded: Any, listener: str, name: str) -> dict[str, Any]:
    address = f"127.0.0.1:{guarded.ports[listener]}"
    quiet = logging.getLogger("librdkafka of these tests")
    quiet.disabled = True
    return {
        **client_config("librdkafka", address, Credentials("OAUTHBEARER", name, "")),
        "logger": quiet,
        "message.timeout.ms": 20_000,
    }


def written(config: dict[str, Any]) -> int:
    """How many of one record do not get there in three seconds."""
    producer = Producer(config)
    producer.produce("tokens", b"x")
    return int(producer.flush(5 if "oauth_cb" not in config else 3))


def test_librdkafka_with_unsecured_tokens(guarded: Any) -> None:
    assert written(quiet_config(guarded, "FREE", "alice")) == 0


def test_librdkafka_with_signed_tokens(guarded: Any) -> None:
    config = quiet_config(guarded, "SIGNED", "")
    asked: list[str] = []

    def right(text: str) -> tuple[str, float]:
        asked.append(text)
        return signed(), time.time() + 100

    assert written({**config, "oauth_cb": right}) == 0
    assert asked
    said: list[str] = []
    wrong = {
        **config,
        "oauth_cb": lambda _: (signed("other", "RS256", "rsa"), time.time() + 100),
        "error_cb": lambda error: said.append(error.str()),
    }
    assert written(wrong) == 1
    assert any("invalid_token" in text for text in said), said


class Tokens:
    """A provider of kafka-python's."""

    def __new__(cls, make: Any) -> Any:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Provider(AbstractTokenProvider):
            def token(self) -> str:
                return str(make())

            def extensions(self) -> dict[str, str]:
                return {"traceId": "7"}

        return Provider()


@pytest.mark.parametrize(("listener", "make"), [("FREE", unsecured), ("SIGNED", signed)])
def test_kafka_python(guarded: Any, listener: str, make: Any) -> None:
    config = {
        "bootstrap_servers": f"127.0.0.1:{guarded.ports[listener]}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    producer = KafkaProducer(**config, sasl_oauth_token_provider=Tokens(make))
    assert producer.send("tokens", b"y").get(20).offset >= 0
    producer.close()
    with pytest.raises(Exception, match=r"(?i)bootstrap|brokers|invalid_token|timeout"):
        KafkaProducer(
            **config,
            sasl_oauth_token_provider=Tokens(lambda: unsecured(exp=1)),
            bootstrap_timeout_ms=3000,
        )


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_java_tools(guarded: Any, version: str, tmp_path: Path) -> None:
    from compat_tests.test_java_tools import Tools

    address = f"127.0.0.1:{guarded.ports['FREE']}"
    own = client_config("java", address, Credentials("OAUTHBEARER", "alice", ""))
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
    tools = Tools(version, address)
    name = f"java-{version.replace('.', '-')}"
    tools("kafka-topics", "--command-config", str(path), "--create", "--topic", name)
    assert name in tools("kafka-topics", "--command-config", str(path), "--list")


def test_a_wrong_token_is_an_error_of_the_client(guarded: Any) -> None:
    config = {**quiet_config(guarded, "SCOPED", "alice"), "socket.timeout.ms": 3000}
    from confluent_kafka.admin import AdminClient

    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=2)

"""How a container's tools come in at locked listeners, and how its key stores are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.cluster import Cluster
from kwire.docker import tools
from kwire.docker.access import access_of
from kwire.docker.client import ToolError
from kwire.docker.environment import container_settings
from kwire.docker.stores import with_stores
from kwire.launch.spec import ClusterSpec
from kwire.launch.up import prepare_tls
from kwire.server.errors import SettingsError

pytestmark = pytest.mark.timeout(60)
STORES = Path(__file__).resolve().parent / "data" / "tls"


def properties_file(path: Path, values: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return str(path)


def tool(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """A tool's status, and what it writes to stdout and stderr."""
    status = tools.main(list(words))
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_tool_logs_in_over_tls_with_a_clients_properties(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(mtls=True, sasl="scram-sha-512", users={"alice": "secret"}) as cluster:
        values = cluster.client_config("java")
        at = ("--bootstrap-server", values.pop("bootstrap.servers"))
        right = properties_file(tmp_path / "client.properties", values)
        make = ("kafka-topics", *at, "--create", "--topic", "t")
        assert tool(capsys, *make, "--command-config", right) == (0, "Created topic t.\n", "")
        listed = tool(capsys, "kafka-topics", *at, "--list", "--command-config", right)
        assert listed == (0, "t\n", "")

        jaas = values["sasl.jaas.config"].replace("secret", "hush")
        wrong = properties_file(tmp_path / "wrong", {**values, "sasl.jaas.config": jaas})
        status, _, said = tool(capsys, "kafka-topics", *at, "--list", "--command-config", wrong)
        assert (status, "Authentication failed" in said, "hush" in said) == (1, True, False), said

        store = {"ssl.truststore.type": "PEM", "ssl.truststore.password": ""}
        store["ssl.truststore.location"] = str(STORES / "foreign-ca.pem")
        foreign = properties_file(tmp_path / "foreign", {**values, **store})
        status, _, said = tool(capsys, "kafka-topics", *at, "--list", "--command-config", foreign)
        assert status == 1 and "no TLS with" in said and said.count("\n") == 1, said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: expected PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI: the image's tools log in by"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            "sasl.jaas.config",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/nosuch"},
            "ssl.truststore.location",
        ),
    ],
)
def test_properties_that_a_tool_cannot_use(values: dict[str, str], said: str) -> None:
    with pytest.raises(ToolError, match=said) as caught:
        access_of(values)
    assert "listener.name" not in str(caught.value)


def test_properties_without_protection_need_none() -> None:
    assert access_of({"client.id": "x", "ssl.truststore.location": "/nosuch"}) == (None, None)


# --- key stores by the names of Kafka's images


def test_stores_are_files_and_credentials_are_files_with_passwords(tmp_path: Path) -> None:
    (tmp_path / "kafka.p12").write_bytes(b"")
    (tmp_path / "password").write_text("hush\n")
    environ = {
        "KAFKA_LISTENERS": "SSL://:9093",
        "KAFKA_SSL_KEYSTORE_FILENAME": "kafka.p12",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "password",
        "KAFKA_SSL_KEY_CREDENTIALS": "password",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "kafka.p12",
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "password",
        "KAFKA_SSL_TRUSTSTORE_PASSWORD": "of the key",
    }
    assert with_stores(environ, str(tmp_path)) == {
        "KAFKA_LISTENERS": "SSL://:9093",
        "KAFKA_SSL_KEYSTORE_LOCATION": str(tmp_path / "kafka.p12"),
        "KAFKA_SSL_KEYSTORE_PASSWORD": "hush",
        "KAFKA_SSL_KEY_PASSWORD": "hush",
        "KAFKA_SSL_TRUSTSTORE_LOCATION": str(tmp_path / "kafka.p12"),
        "KAFKA_SSL_TRUSTSTORE_PASSWORD": "of the key",
    }
    settings = container_settings(with_stores(environ, str(tmp_path)))
    assert settings.node.values["ssl.keystore.location"] == str(tmp_path / "kafka.p12")
    assert settings.unknown == {}


@pytest.mark.parametrize("variable", ["KAFKA_SSL_KEYSTORE_FILENAME", "KAFKA_SSL_KEY_CREDENTIALS"])
def test_a_store_that_is_not_there_is_refused(tmp_path: Path, variable: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable}.*{tmp_path}/nosuch"):
        with_stores({variable: "nosuch"}, str(tmp_path))


def test_an_environment_without_stores_is_left_as_it_is() -> None:
    environ = {"KAFKA_SSL_KEYSTORE_LOCATION": "/k"}
    assert with_stores(environ) == environ


# --- certificates of containers that are one cluster


def test_a_controllers_certificate_has_its_name_among_the_voters(tmp_path: Path) -> None:
    from cryptography import x509

    from kwire.docker.cluster_node import with_certificates

    settings = container_settings(
        {
            "KAFKA_NODE_ID": "4",
            "KAFKA_PROCESS_ROLES": "controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "4@controller:9093",
            "KAFKA_LISTENERS": "CONTROLLER://0.0.0.0:9093",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:SSL",
            "KWIRE_TLS": "true",
            "KAFKA_KWIRE_TLS_DIRECTORY": str(tmp_path),
        }
    )
    node = with_certificates(settings.node)
    data = Path(node.values["ssl.keystore.location"]).read_bytes()
    certificate = x509.load_pem_x509_certificate(data[data.index(b"-----BEGIN CERT") :])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "controller" in names.get_values_for_type(x509.DNSName)
    assert "advertised.listeners" not in node.values


@pytest.mark.parametrize("variable", ["KWIRE_TLS", "KWIRE_MTLS"])
def test_the_log_says_which_variable_asked_for_certificates(
    variable: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    variables = {variable: "true", "KAFKA_KWIRE_TLS_DIRECTORY": str(tmp_path / "tls")}
    settings = container_settings(variables)
    node = settings.node.replace(data_dir=str(tmp_path))
    prepare_tls(ClusterSpec(node=node), settings.written)
    (made,) = [each for each in caplog.records if "certificates are in" in each.getMessage()]
    assert f"{variable}=true" in made.getMessage()

"""isolation "docker" where there is no engine: what is said, and that nothing is left. With one:
compat_tests/test_cluster_docker.py."""

import io
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
from plugin_run import run_pytest

from kwire import Cluster, errors
from kwire.backends.inside.doors import Doors, variables_of
from kwire.backends.options import spec_of

pytestmark = pytest.mark.timeout(60)

SCRIPT = """
import sys
sys.modules["docker"] = None  # as where it is not installed
from kwire import Cluster, errors
try:
    Cluster(isolation="docker").start()
except errors.StartError as error:
    print(error)
"""


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker", reason="the Docker SDK is not installed: make setup")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_without_the_sdk_it_says_how_to_get_it() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout == (
        'isolation "docker" needs the Docker SDK: pip install "kwire[docker]"\n'
    ), done.stderr


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_it_says_so_in_a_line_and_leaves_nothing(tmp_path: Path) -> None:
    threads = threading.active_count()
    for brokers in (1, 3):
        with pytest.raises(errors.StartError, match="no Docker engine answers: ") as found:
            Cluster(brokers, isolation="docker").start()
        assert "\n" not in str(found.value)
    assert threading.active_count() == threads and list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_engine")
def test_tests_of_somebody_without_an_engine_fail_with_a_line_each(tmp_path: Path) -> None:
    source = """
    import pytest

    def test_one(kwire):
        pass

    @pytest.mark.kwire(brokers=3)
    def test_three(kwire):
        pass

    def test_without(tmp_path):
        pass
    """
    run = run_pytest(tmp_path, source, "--kwire-mode=docker")
    assert run.counts == {"passed": 1, "error": 2}, run.text
    assert run.text.count("\nStartError: no Docker engine answers: ") == 2, run.text
    assert "Traceback" not in run.text and "pytest_plugin.py" not in run.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data_dir": "/tmp/x"}, "data_dir: not possible with isolation"),
        ({"config": {"listeners": "PLAINTEXT://:1"}}, "listeners: not possible with isolation"),
        ({"config": {"log.dirs": "/x"}}, "log.dirs: not possible with isolation"),
        ({"config": {"num.partitions": "x"}}, "num.partitions"),
        ({"brokers": 0}, "brokers: expected a number from 1, not 0"),
    ],
)
def test_what_containers_cannot_have_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=said):
        Cluster(isolation="docker", **options)


def test_configuration_keys_become_the_images_variables() -> None:
    assert variables_of({"num.partitions": "3", "a_b-c.d": "x"}) == {
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_A__B___C_D": "x",
    }


# --- locks


def locked(**locks: Any) -> Doors:
    users = {"admin": "s", "alice": "t"}
    options = {"sasl": "plain", "users": users, "tls": False, "mtls": False, "acl": True}
    given = {**options, "super_users": ["admin"], **locks}
    names = ("sasl", "users", "tls", "mtls", "acl", "super_users")
    return Doors(spec_of(2, 1, "docker", {}, {}, tuple(given[each] for each in names)))  # type: ignore[arg-type]


def test_locks_are_those_of_the_clients_listener() -> None:
    found = locked().of_broker(2, "127.0.0.1:4711", is_alone=False)
    assert found["KAFKA_LISTENERS"] == (
        "SASL_PLAINTEXT://0.0.0.0:9092,KWIRE_INTERNAL://0.0.0.0:19092"
    )
    assert found["KAFKA_ADVERTISED_LISTENERS"] == (
        "SASL_PLAINTEXT://127.0.0.1:4711,KWIRE_INTERNAL://kafka-2:19092"
    )
    assert found["KAFKA_INTER_BROKER_LISTENER_NAME"] == "KWIRE_INTERNAL"
    assert found["KAFKA_AUTHORIZER_CLASS_NAME"] and found["KAFKA_SUPER_USERS"] == "User:admin"
    controller = locked().of_controller(1000)
    assert controller["KAFKA_LISTENERS"] == "KWIRE_INTERNAL://0.0.0.0:9093"
    assert controller["KAFKA_SUPER_USERS"] == "User:admin"


def test_an_image_takes_these_variables() -> None:
    from kwire.docker.cluster_node import controller_spec
    from kwire.docker.environment import container_settings

    voters = {"KAFKA_CONTROLLER_QUORUM_VOTERS": "1000@controller:9093", "KWIRE_CONTROLLERS": "1"}
    found = locked().of_controller(1000) | voters | {"KAFKA_NODE_ID": "1000"}
    values = controller_spec(container_settings(found)).values
    assert values["listeners"] == "KWIRE_INTERNAL://0.0.0.0:9093"  # not subject to access rules
    assert values["advertised.listeners"] == "KWIRE_INTERNAL://controller:9093"


def test_certificates_are_made_here_and_a_container_gets_its_own(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    doors = locked(mtls=True)
    doors.make_certificates(str(tmp_path), "127.0.0.1")
    found = doors.of_broker(2, "127.0.0.1:4711", is_alone=False)
    assert found["KAFKA_SSL_KEYSTORE_LOCATION"] == "/etc/kafka/secrets/node.pem"
    assert found["KAFKA_LISTENER_NAME_SASL__SSL_SSL_CLIENT_AUTH"] == "required"
    assert not any(
        str(tmp_path) in text or name.startswith("KAFKA_KWIRE_TLS") for name, text in found.items()
    )
    put: list[Any] = []

    class Container:
        def put_archive(self, path: str, data: bytes) -> None:
            put.append((path, data))

    doors.put_certificates(Container(), 2)
    ((path, data),) = put
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {each.name: (each.uid, each.mode) for each in archive.getmembers()}
        file = archive.extractfile("node.pem")
        own = file.read() if file else None
    assert path == "/etc/kafka/secrets"
    assert members == {"node.pem": (1000, 0o600), "ca.pem": (1000, 0o600)}
    assert own == (tmp_path / "tls" / "broker-2.pem").read_bytes()


def test_an_engine_on_another_machine_has_no_locked_cluster() -> None:
    with pytest.raises(errors.StartError, match="not possible with a Docker engine on another"):
        locked().make_certificates("/tmp", "0.0.0.0")


def test_listeners_beside_locks_are_refused() -> None:
    with pytest.raises(errors.ConfigurationError, match="listeners: not possible with isolation"):
        Cluster(isolation="docker", tls=True, config={"listeners": "PLAINTEXT://127.0.0.1:0"})

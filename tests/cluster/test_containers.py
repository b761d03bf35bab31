"""isolation "docker" where there is no engine: what is said, and that nothing is left. With one:
compat_tests/test_cluster_docker.py."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from plugin_run import run_pytest

from kwire import Cluster, errors
from kwire.backends.containers import _variables

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
    assert _variables({"num.partitions": "3", "a_b-c.d": "x"}) == {
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_A__B___C_D": "x",
    }

"""A Docker engine and kwire's image in it, for tests: found or made once; ToolMissing where none can run."""

import contextlib
import functools
import io
import os
import re
import signal
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests import tooling
from compat_tests.brokers import free_port

ROOT = Path(__file__).resolve().parent.parent
TAG = "kwire-test"
READY = b"Kafka Server started"
START_TIMEOUT_S = 60
LABEL = "kwire.test"

docker = pytest.importorskip("docker", reason="the Docker SDK is not installed: make setup")


@functools.cache
def base_image() -> str:
    """The image to build on, by way of tools/docker-base.sh, which starts an engine if it can."""
    script = ROOT / "tools" / "docker-base.sh"
    with tooling._locked("docker"):
        said = tooling._run("Docker", ["bash", str(script)])
    return said.strip().splitlines()[-1]


# Any: the SDK has no types.
@functools.cache
def engine() -> Any:
    """The SDK's client of an engine that answers."""
    try:
        client = docker.from_env(timeout=120)
        client.ping()
        return client
    except (docker.errors.DockerException, OSError):
        base_image()
    client = docker.from_env(timeout=120)
    client.ping()
    return client


@functools.cache
def image() -> str:
    """kwire's image, built from this tree (the second time out of the engine's cache)."""
    client, base = engine(), base_image()
    with tooling._locked("docker"):
        try:
            client.images.build(
                fileobj=_context(),
                custom_context=True,
                tag=TAG,
                buildargs={"BASE_IMAGE": base},
                rm=True,
                forcerm=True,
            )
        except docker.errors.BuildError as error:
            lines = "".join(part.get("stream", "") for part in error.build_log)
            pytest.fail(f"the image does not build: {error}\n{lines[-2000:]}", pytrace=False)
    return TAG


def _context() -> io.BytesIO:
    """What .dockerignore lets through, as a tar file: the SDK by itself would walk all of .venv and .build."""
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"]

    def kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        return None if "__pycache__" in info.name else info

    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name in ["Dockerfile", *allowed]:
            archive.add(ROOT / name, arcname=name, filter=kept)
    context.seek(0)
    return context


@functools.cache
def spark_image() -> str:
    """The Spark of examples/compose/spark.yml: SPARK_IMAGE, the file's own where it can be had, else one made here."""
    if given := os.environ.get("SPARK_IMAGE"):
        return given
    text = (ROOT / "examples" / "compose" / "spark.yml").read_text()
    (name,) = re.findall(r"\$\{SPARK_IMAGE:-(\S+)\}", text)
    client = engine()
    for find in (client.images.get, client.images.pull):
        try:
            find(name)
            return str(name)
        except (docker.errors.APIError, OSError):
            pass
    stand_in = f"{TAG}-spark"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        archive.add(ROOT / "compat_tests" / "spark_image" / "Dockerfile", arcname="Dockerfile")
        authorities = Path("/etc/ssl/certs/java/cacerts")
        archive.addfile(tarfile.TarInfo("cacerts-none"))
        if authorities.exists():
            archive.add(authorities.resolve(), arcname="cacerts")
    context.seek(0)
    with tooling._locked("docker"):
        try:
            client.images.build(
                fileobj=context,
                custom_context=True,
                tag=stand_in,
                buildargs={"BASE_IMAGE": base_image()},
                rm=True,
                forcerm=True,
            )
        except docker.errors.BuildError as error:
            raise tooling.ToolMissing(f"an image with Spark: {error}") from None
    return stand_in


def skip_without_engine() -> None:
    """Skip the test unless a Docker engine answers; none is started."""
    docker = pytest.importorskip("docker")
    try:
        docker.from_env().ping()
    except Exception:
        pytest.skip("no Docker engine")


@contextlib.contextmanager
def tagged(repository: str, tag: str) -> Iterator[str]:
    """kwire's image under another's name; what had that name has it again afterwards."""
    client, name = engine(), f"{repository}:{tag}"
    ours = client.images.get(image())
    try:
        before = client.images.get(name)
    except docker.errors.ImageNotFound:
        before = None
    ours.tag(repository, tag)
    try:
        yield name
    finally:
        if before is not None and before.id != ours.id:
            before.tag(repository, tag)
        else:
            client.images.remove(name, noprune=True)


def run(environment: dict[str, str] | None = None, **options: Any) -> Any:
    """A container of kwire's image, started; the caller removes it."""
    return engine().containers.run(
        image(), detach=True, environment=environment or {}, labels=[LABEL], **options
    )


@contextlib.contextmanager
def running(environment: dict[str, str] | None = None, **options: Any) -> Iterator[Any]:
    """A container that is ready, removed with its volumes at the end."""
    container = run(environment, **options)
    try:
        wait_ready(container)
        yield container
    finally:
        container.remove(force=True, v=True)


@contextlib.contextmanager
def serving(environment: dict[str, str] | None = None, **options: Any) -> Iterator[tuple[Any, str]]:
    """A container with one broker, and where this machine reaches it."""
    port = free_port()
    variables = {
        "KAFKA_LISTENERS": "PLAINTEXT://:9092",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        **(environment or {}),
    }
    ports = {"9092/tcp": ("127.0.0.1", port)}
    with running(variables, ports=ports, **options) as container:
        yield container, f"127.0.0.1:{port}"


def wait_ready(container: Any, line: bytes = READY, count: int = 1) -> None:
    """Until the container has said that it is ready; fails with its log when it ends before."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while container.logs().count(line) < count:
        container.reload()
        if container.status in ("exited", "dead") or time.monotonic() > deadline:
            pytest.fail(
                f"container {container.status}:\n{container.logs().decode()[-2000:]}", pytrace=False
            )
        time.sleep(0.02)  # there is nothing to await from a container's log


def outcome(environment: dict[str, str], **options: Any) -> tuple[int, list[str]]:
    """Exit status of a container that is to end by itself, and what it wrote to stderr."""
    container = run(environment, **options)
    try:
        status = container.wait(timeout=START_TIMEOUT_S)["StatusCode"]
        return status, container.logs(stdout=False).decode().splitlines()
    finally:
        container.remove(force=True, v=True)


def wait_handles_sigterm(container: Any) -> None:
    """Until process 1 of a container that was started is the image's own and has a handler for SIGTERM, or has ended.

    Where the engine's processes cannot be seen from here: until it has written its first line."""
    container.reload()
    status = Path("/proc") / str(container.attrs["State"]["Pid"]) / "status"
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            break
        if fields["NSpid"].split()[-1] != "1":
            break  # another process: the engine counts in a namespace of its own
        # What makes the container, runc, is process 1 before and has handlers for everything.
        its_own = not fields["Name"].strip().startswith(("runc", "crun", "exe"))
        if its_own and int(fields["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1:
            return
        assert time.monotonic() < deadline, fields
        time.sleep(0.001)
    while not container.logs():
        container.reload()
        if container.status != "running":
            return
        assert time.monotonic() < deadline, "not a line"
        time.sleep(0.005)


def stop_seconds(container: Any) -> float:
    """docker stop: how long it took."""
    start = time.monotonic()
    container.stop(timeout=10)
    return time.monotonic() - start


def with_free_ports(text: str) -> tuple[str, dict[str, int]]:
    """A compose file on free ports of this machine, and which stands for which."""
    ports: dict[str, int] = {}
    for port in re.findall(r'^ +- "(\d+):\d+"', text, re.MULTILINE):
        ports[port] = free_port()
        text = re.sub(rf'"{port}:', f'"{ports[port]}:', text)
        text = text.replace(f"localhost:{port}", f"localhost:{ports[port]}")
    return text, ports


class Compose:
    """A compose file's services as containers in a network of their own, with free ports of this machine.

    As much of compose as the examples use; the engine of a CI machine need not have the plugin."""

    def __init__(self, path: Path) -> None:
        import yaml

        text, self.ports = with_free_ports(path.read_text())
        text = re.sub(r"\$\{KWIRE_IMAGE:-kwire\}", image(), text)
        self.services: dict[str, Any] = yaml.safe_load(text)["services"]
        self.name = f"kwire-test-{os.getpid()}-{free_port()}"
        self.containers: dict[str, Any] = {}

    def __enter__(self) -> "Compose":
        self._network = engine().networks.create(self.name, labels={LABEL: "1"})
        try:
            for name, service in self.services.items():
                self._start(name, service)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, name: str, service: dict[str, Any]) -> None:
        unknown = service.keys() - {
            "image",
            "build",
            "ports",
            "environment",
            "volumes",
            "depends_on",
        }
        assert not unknown, f"this runner does not know {unknown}"
        client = engine()
        volumes = dict(item.split(":") for item in service.get("volumes", ()))
        container = client.containers.create(
            service["image"],
            detach=True,
            labels=[LABEL],
            environment={key: str(value) for key, value in service["environment"].items()},
            ports={
                f"{inner}/tcp": int(outer)
                for outer, inner in (item.split(":") for item in service.get("ports", ()))
            },
            volumes={
                f"{self.name}-{key}": {"bind": folder, "mode": "rw"}
                for key, folder in volumes.items()
            },
        )
        self.containers[name] = container
        self._network.connect(container, aliases=[name])
        container.start()

    def __exit__(self, *_: object) -> None:
        for container in self.containers.values():
            container.remove(force=True, v=True)
        self._network.remove()
        for volume in engine().volumes.list():
            if volume.name.startswith(self.name):
                volume.remove(force=True)

    def wait_ready(self) -> None:
        """Until every service has said that it is ready."""
        for container in self.containers.values():
            wait_ready(container)

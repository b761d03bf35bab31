#!/usr/bin/env bash
# Makes spark_it/.build/venv-VERSION (PySpark, kwire, test tools) and spark_it/.build/jars-VERSION
# (Spark's Kafka source and what it needs). SPARK_VERSION chooses: 4.0.0 (default), 3.5.7.
# Does nothing the second time. Called by `make spark`.
set -euo pipefail
cd "$(dirname "$0")"

version=${SPARK_VERSION:-4.0.0}
build=.build
fail() { echo "spark setup: $*" >&2; exit 1; }
case $version in
    4.*) scala=2.13; pythons="python3.11 python3.12 python3.13 python3" ;;
    3.*) scala=2.12; pythons="python3.11 python3.12 python3" ;;
    *) fail "SPARK_VERSION=$version: 4.0.0 and 3.5.7 are known to work" ;;
esac

mkdir -p $build
exec 9>"$build/lock-$version"
flock 9 2>/dev/null || true

venv=$build/venv-$version jars=$build/jars-$version stamp=$build/stamp-$version
key=$( (cat setup.sh pom.xml; sed -n '/^dependencies/,/^]/p; /^spark = /p' ../pyproject.toml; pwd) | sha256sum | cut -d' ' -f1)
if [ -x $venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then exit 0; fi
rm -f "$stamp"

what="spark setup"
. ../tools/apt.sh

# Spark 3.5 and 4.0 run on Java 17 (and 21, for 4.0): what is there is taken, else a package.
java=${JAVA_HOME:+$JAVA_HOME/bin/java}
java=${java:-$(command -v java || true)}
major=$("${java:-false}" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1 || true)
case $major in
    17 | 21) ;;
    "") apt openjdk-17-jre-headless || fail "no Java: install a Java 17, or set JAVA_HOME" ;;
    *) fail "Java $major at $java: Spark $version needs Java 17, set JAVA_HOME" ;;
esac
command -v mvn >/dev/null || apt maven || fail "no mvn: install Apache Maven"

python=
for name in ${PYTHON:-} $pythons; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then python=$name; break; fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is needed: set PYTHON=/path/to/python"

echo "spark setup: Spark $version into spark_it/.build (once, about 450 MB)" >&2
log=$build/setup-$version.log
[ -x $venv/bin/python ] || "$python" -m venv $venv >"$log" 2>&1 || fail "$python cannot make a virtual environment, see $log"
env PIP_DISABLE_PIP_VERSION_CHECK=1 $venv/bin/python -m pip install -q "pyspark==$version" -e "..[spark,tls]" \
    'pytest>=8' pytest-timeout pytest-rerunfailures 'confluent-kafka>=2.6' 'kafka-python>=3' 'docker>=7' 'testcontainers>=4.10' >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2; fail "pip failed, see $log"; }
rm -rf "$jars"
mvn -B -q -f pom.xml "-Dspark.version=$version" "-Dscala.version=$scala" dependency:copy-dependencies \
    -DincludeScope=runtime "-DoutputDirectory=$PWD/$jars" >"$log" 2>&1 ||
    { grep -m 1 ERROR "$log" >&2 || tail -n 5 "$log" >&2; fail "mvn could not fetch the jars of Spark $version, see $log"; }
ls $jars/spark-sql-kafka-0-10_*-"$version".jar >/dev/null 2>&1 || fail "mvn copied no spark-sql-kafka jar, see $log"
echo "$key" >"$stamp"

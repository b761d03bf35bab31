#!/usr/bin/env bash
# Makes .venv with kwire and its development tools, from a bare Debian machine if need be.
# Does nothing when pyproject.toml has not changed since the last time. Called by make.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "setup: $*" >&2; exit 1; }

mkdir -p .venv
exec 9>.venv/.lock
flock 9 2>/dev/null || true

stamp=.venv/.stamp
key=$( (cat pyproject.toml tools/setup.sh; pwd) | { sha256sum 2>/dev/null || shasum -a 256; } | cut -d' ' -f1)
if [ -x .venv/bin/python ] && [ "$(cat $stamp 2>/dev/null)" = "$key" ]; then exit 0; fi

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
find_python() {
    local name
    for name in "${PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
        if [ -n "$name" ] && suits "$name"; then echo "$name"; return; fi
    done
}
what=setup
. tools/apt.sh

python=$(find_python)
if [ -z "$python" ]; then
    apt python3 python3-venv || fail "Python 3.11 or newer is needed: install it, or set PYTHON=/path/to/python"
    python=$(find_python)
    [ -n "$python" ] || fail "Python 3.11 or newer is needed, this system's package is older: set PYTHON=/path/to/python"
fi

make_venv() { "$python" -m venv --clear .venv >/dev/null 2>&1 && has_pip; }
has_pip() { .venv/bin/python -m pip --version >/dev/null 2>&1; }
if ! { has_pip && suits .venv/bin/python; }; then
    echo "setup: .venv with $("$python" --version)" >&2
    make_venv ||
        { apt python3-venv && make_venv; } ||
        { command -v uv >/dev/null && uv venv -q --clear --seed --python "$python" .venv && has_pip; } ||
        fail "$python cannot make a virtual environment: install python3-venv"
fi

echo "setup: kwire and its development tools into .venv (once)" >&2
pip="env PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip install -q"
log=.venv/setup.log
{ $pip 'pip>=25.1' 'setuptools>=77' && $pip -e . --group dev --group docker; } >"$log" 2>&1 || { tail -n 5 "$log" >&2; fail "pip failed, see $log"; }
.venv/bin/python -c 'import kwire, construct, click' || fail "kwire does not import from .venv"
echo "$key" >$stamp

# Sourced by the set-up scripts; `what` is the name under which they speak.

# Installs Debian packages, as root where there is apt-get; else 1.
apt() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "$what: apt-get install $*" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 && return
    apt-get update -q >/dev/null 2>&1 || true
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1
}

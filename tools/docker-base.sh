#!/usr/bin/env bash
# Makes a Docker engine answer and a base image exist where the usual ones cannot be had (a CI machine without a
# registry, a container run as root): prints the name of an image to build on. Does nothing the second time.
#
#   docker build --build-arg BASE_IMAGE="$(tools/docker-base.sh)" -t kwire .
#
# An engine that answers is used as it is. Where none does, and this is root on Debian, Debian's is installed and
# started (it goes on running; its pid goes to stderr). The image: KWIRE_BASE if that is set, else python:3.13-slim if
# the engine has it or can pull it, else kwire-base, which debootstrap fills with Debian and its Python.
set -euo pipefail

fail() { echo "docker-base: $*" >&2; exit 1; }
apt() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail "$* is missing, and only root on Debian can install it"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return
    apt-get update -qq >/dev/null 2>&1 || true
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 || fail "apt-get install $* failed"
}
answers() { timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

exec 9>"${TMPDIR:-/tmp}/kwire-docker-base-$(id -u).lock"
flock 9 2>/dev/null || true

if ! answers; then
    [ "$(id -u)" = 0 ] || fail "no Docker engine answers, and only root can start one"
    command -v dockerd >/dev/null || apt docker.io iptables
    log=${TMPDIR:-/tmp}/kwire-dockerd.log
    for options in "" "--iptables=false --ip6tables=false"; do
        # shellcheck disable=SC2086  # options are words
        setsid dockerd $options >"$log" 2>&1 9>&- </dev/null &
        pid=$!
        for _ in $(seq 150); do
            if answers; then echo "docker-base: dockerd $options runs, pid $pid" >&2; break 2; fi
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.2
        done
        kill "$pid" 2>/dev/null && wait "$pid" || true
    done
    answers || fail "the engine does not start: $(tail -n 1 "$log")"
fi

if [ -n "${KWIRE_BASE:-}" ]; then echo "$KWIRE_BASE"; exit; fi
if docker image inspect kwire-base >/dev/null 2>&1; then echo kwire-base; exit; fi
if docker image inspect python:3.13-slim >/dev/null 2>&1 ||
    timeout 120 docker pull -q python:3.13-slim >/dev/null 2>&1; then
    echo python:3.13-slim; exit
fi

command -v debootstrap >/dev/null || apt debootstrap
root=$(mktemp -d); trap 'rm -rf "$root"' EXIT
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
packages=python3,python3-venv,python3-pip,ca-certificates,hostname
log=${TMPDIR:-/tmp}/kwire-debootstrap.log
debootstrap --variant=minbase --include=$packages "$suite" "$root" >"$log" 2>&1 ||
    fail "debootstrap failed: $(tail -n 1 "$log")"
# The machine's own certificates: whoever stands between it and the network is in there.
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
tar -C "$root" -c . | docker import \
    --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' \
    - kwire-base >/dev/null
echo kwire-base

# kwire as an image: docker run -p 9092:9092 kwire
#
# It keeps the contracts of apache/kafka and confluentinc/cp-kafka (docs/docker.md), so that what wraps those wraps
# this. BASE_IMAGE: any Debian with Python 3.11 or newer; tools/docker-base.sh makes one where nothing can be pulled.
# No heredocs, no --mount, no --chmod: the classic builder makes it, too.
ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /src
# Dependencies in a layer of their own, which a change of kwire's source leaves alone.
COPY pyproject.toml ./
RUN python3 -m venv --without-pip /opt/kwire \
    && python3 -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print('\n'.join(p['dependencies'] + p['optional-dependencies']['tls'] + p['optional-dependencies']['oauth']))" >/tmp/requirements \
    && python3 -m pip --python /opt/kwire/bin/python install -q --no-cache-dir --no-compile --disable-pip-version-check -r /tmp/requirements \
    && python3 -m pip install -q --no-cache-dir --disable-pip-version-check --target /tmp/setuptools "setuptools>=77"
COPY . .
# Bytecode that is taken as it is: nobody edits an image's sources, and no file need be asked for its age.
RUN PYTHONPATH=/tmp/setuptools python3 -m pip --python /opt/kwire/bin/python install -q --no-cache-dir --no-compile \
        --no-deps --no-build-isolation --disable-pip-version-check . \
    && /opt/kwire/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/kwire/lib

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="kwire" \
      org.opencontainers.image.description="A Kafka-wire-compatible test broker" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/kwire /opt/kwire
COPY docker/kafka /etc/kafka/docker
COPY docker/confluent /etc/confluent/docker
COPY docker/bin /opt/kafka/bin
# The scripts are the user's own: modules edit them, append to them and empty them.
RUN useradd --uid 1000 --create-home --shell /bin/bash appuser \
    && mkdir -p /etc/kafka/secrets /var/lib/kafka/data /var/lib/kafka/controller /mnt/shared/config /opt/kafka/config/kraft \
    && sh /opt/kafka/bin/link-tools \
    && chown -R appuser:appuser /etc/kafka /etc/confluent /var/lib/kafka /mnt/shared /opt/kafka /home/appuser
# Python's own modules are without bytecode in python:slim: the first start leaves it behind for those that are used.
RUN python3 /opt/kafka/bin/first-start && rm /opt/kafka/bin/first-start /opt/kafka/bin/link-tools
# KWIRE_HEALTH_FILE: kwire up in a container passes the health check, too.
ENV PATH=/opt/kwire/bin:/opt/kafka/bin:$PATH KWIRE_HEALTH_FILE=/tmp/kwire-health
USER appuser
WORKDIR /home/appuser
EXPOSE 9092
VOLUME /var/lib/kafka/data
# The first check begins after the interval and waits for the start, so there is no start period: engines from 25 on
# would check every 5 s in it, and older ones do not know --start-interval. Later checks watch for 20 s each: an engine
# spends 80 ms of CPU on every process that it runs in a container.
HEALTHCHECK --interval=500ms --timeout=40s --retries=3 CMD ["/opt/kafka/bin/kwire-health", "--watch"]
CMD ["/etc/kafka/docker/run"]

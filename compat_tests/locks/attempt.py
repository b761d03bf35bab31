"""A client library of Python at a listener that asks for TLS and log-ins: the words of compat_tests/locks/__init__.py.

`attempt.py LIBRARY`; it imports nothing of this project, and of Kafka's clients the one that is named.
"""

import asyncio
import json
import logging
import os
import ssl
import sys

PATIENCE_S = 8


class Refusals(logging.Handler):
    """The first reason that a library logs: its exceptions often say no more than that no broker was reached."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


REASONS = ("CERTIFICATE_VERIFY_FAILED", "SaslAuthenticationFailed", "UnsupportedSaslMechanism")


def reason_in(text):
    """The reason that a library's exception or log gives, to be put behind the exception's name."""
    for reason in REASONS:
        if reason in text:
            return f": {reason}"
    return ": alert of TLS" if "ALERT_" in text else ""


def written_and_read(written, value):
    if written != value.encode():
        raise AssertionError(f"read {written}")


def confluent(request):
    import confluent_kafka

    errors = []
    config = {
        "bootstrap.servers": request["servers"],
        "security.protocol": "SASL_SSL" if request["mechanism"] else "SSL",
        "ssl.ca.location": request["ca"],
        "error_cb": errors.append,
        "logger": logging.getLogger("librdkafka"),
    }
    if request["own"]:
        config |= {"ssl.certificate.location": request["own"], "ssl.key.location": request["own"]}
    if request["mechanism"]:
        config |= {"sasl.mechanism": request["mechanism"], "sasl.username": request["user"]}
        config["sasl.password"] = request["password"]
    made = []
    producer = confluent_kafka.Producer({**config, "message.timeout.ms": PATIENCE_S * 1000})
    producer.produce(
        request["topic"], request["value"], on_delivery=lambda e, m: made.append((e, m))
    )
    while not made and not errors:
        producer.poll(0.1)
    producer.purge()
    if not made or made[0][0] is not None:
        first = errors[0] if errors else made[0][0]
        return first.name(), first.str()
    at = made[0][1]
    reader = confluent_kafka.Consumer({**config, "group.id": "reads"})
    reader.assign([confluent_kafka.TopicPartition(at.topic(), at.partition(), at.offset())])
    try:
        written_and_read(reader.poll(PATIENCE_S).value(), request["value"])
    finally:
        reader.close()
    return None


def kafka_python(request):
    import kafka

    config = {
        "bootstrap_servers": request["servers"],
        "security_protocol": "SASL_SSL" if request["mechanism"] else "SSL",
        "ssl_cafile": request["ca"],
        "request_timeout_ms": PATIENCE_S * 1000,
    }
    if request["own"]:
        config |= {"ssl_certfile": request["own"], "ssl_keyfile": request["own"]}
    if request["mechanism"]:
        config |= {
            "sasl_mechanism": request["mechanism"],
            "sasl_plain_username": request["user"],
            "sasl_plain_password": request["password"],
        }
    patient = (
        {"api_version_auto_timeout_ms": 2000, "max_block_ms": 4000}
        if kafka.__version__ < "3"
        else {"bootstrap_timeout_ms": 2000, "max_block_ms": PATIENCE_S * 1000}
    )
    producer = kafka.KafkaProducer(**config, **patient)
    try:
        at = producer.send(request["topic"], request["value"].encode()).get(PATIENCE_S)
    finally:
        producer.close(1)
    patient.pop("max_block_ms")
    reader = kafka.KafkaConsumer(
        **config | {"request_timeout_ms": 40_000},
        **patient,
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    try:
        place = kafka.TopicPartition(at.topic, at.partition)
        reader.assign([place])
        reader.seek(place, at.offset)
        written_and_read(next(reader).value, request["value"])
    finally:
        reader.close()


def aiokafka(request):
    import aiokafka

    context = ssl.create_default_context(cafile=request["ca"])
    if request["own"]:
        context.load_cert_chain(request["own"])
    config = {
        "bootstrap_servers": request["servers"],
        "security_protocol": "SASL_SSL" if request["mechanism"] else "SSL",
        "ssl_context": context,
        "request_timeout_ms": PATIENCE_S * 1000,
    }
    if request["mechanism"]:
        config |= {
            "sasl_mechanism": request["mechanism"],
            "sasl_plain_username": request["user"],
            "sasl_plain_password": request["password"],
        }

    async def attempt():
        producer = aiokafka.AIOKafkaProducer(**config)
        try:
            await producer.start()
            at = await producer.send_and_wait(request["topic"], request["value"].encode())
        finally:
            await producer.stop()
        reader = aiokafka.AIOKafkaConsumer(**config)
        await reader.start()
        try:
            place = aiokafka.TopicPartition(at.topic, at.partition)
            reader.assign([place])
            reader.seek(place, at.offset)
            read = await asyncio.wait_for(reader.getone(), PATIENCE_S)
            written_and_read(read.value, request["value"])
        finally:
            await reader.stop()

    asyncio.run(attempt())


LIBRARIES = {
    "confluent-kafka": confluent,
    "kafka-python-2": kafka_python,
    "kafka-python-3": kafka_python,
    "aiokafka": aiokafka,
}


def main():
    library = LIBRARIES[sys.argv[1]]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints by itself must not look like an answer
    for line in sys.stdin:
        refusals = Refusals()
        logging.basicConfig(handlers=[refusals], level=logging.WARNING, force=True)
        try:
            refused = library(json.loads(line))
        except Exception as error:
            refused = type(error).__name__, str(error)
        said = {"kind": "in", "text": ""}
        if refused is not None:
            text = " | ".join([refused[1], *refusals.said])
            said = {"kind": refused[0] + reason_in(text), "text": text}
        out.write(json.dumps({"ok": said}) + "\n")
        out.flush()


main()

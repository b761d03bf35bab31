"""kafka-python and confluent-kafka (librdkafka) while faults are set: `python attempt.py LIBRARY`."""

import json
import sys
import time


def kafka_python(request):
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    common = {"bootstrap_servers": request["servers"], "retry_backoff_ms": 20}
    if request["act"] == "send":
        producer = KafkaProducer(
            **common,
            acks="all",
            linger_ms=0,
            request_timeout_ms=1500,
            delivery_timeout_ms=25_000,
            enable_idempotence=request["idempotent"],
        )
        try:
            value, partition = request["value"].encode(), request["partition"]
            for _ in range(request["count"]):
                producer.send(request["topic"], value, partition=partition).get(timeout=30)
        finally:
            producer.close(timeout=1)
        return
    consumer = KafkaConsumer(**common, auto_offset_reset="earliest", fetch_max_wait_ms=200)
    try:
        partition = TopicPartition(request["topic"], request["partition"])
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        deadline = time.monotonic() + 25
        while time.monotonic() < deadline:
            if consumer.poll(200):
                return
        raise TimeoutError("nothing read")
    finally:
        consumer.close()


class Refused(Exception):
    """An error of librdkafka, by its name."""


def librdkafka(request):
    from confluent_kafka import Consumer, Producer, TopicPartition

    common = {"bootstrap.servers": request["servers"], "log_level": 0}
    common |= {"retry.backoff.ms": 20, "retry.backoff.max.ms": 50}
    if request["act"] == "send":
        producer = Producer(
            {
                **common,
                "acks": "all",
                "linger.ms": 0,
                "socket.timeout.ms": 1500,
                "request.timeout.ms": 1500,
                "delivery.timeout.ms": 25_000,
                "enable.idempotence": request["idempotent"],
            }
        )
        for _ in range(request["count"]):
            found = []
            producer.produce(
                request["topic"],
                request["value"].encode(),
                partition=request["partition"],
                on_delivery=lambda error, _, found=found: found.append(error),
            )
            producer.flush(30)
            if not found or found[0] is not None:
                raise Refused(found[0].name() if found else "nothing")
        return
    group = {"group.id": "g", "check.crcs": True, "auto.offset.reset": "earliest"}
    consumer = Consumer({**common, **group, "fetch.wait.max.ms": 200})
    try:
        consumer.assign([TopicPartition(request["topic"], request["partition"], 0)])
        message = consumer.poll(25)
        if message is None:
            raise TimeoutError("nothing read")
        if message.error() is not None:
            raise Refused(message.error().name())
    finally:
        consumer.close()


def main():
    attempt = {"kafka-python": kafka_python, "librdkafka": librdkafka}[sys.argv[1]]
    for line in sys.stdin:
        try:
            attempt(json.loads(line))
            said = {"kind": "ok", "text": ""}
        except Refused as refused:
            said = {"kind": str(refused), "text": ""}
        except Exception as error:
            said = {"kind": type(error).__name__, "text": str(error)}
        print(json.dumps({"ok": said}), flush=True)


if __name__ == "__main__":
    main()

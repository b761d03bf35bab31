"""confluent-kafka (librdkafka) under the line protocol of clients.py."""

import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from serve import Driver, Member, decode, encode

TIMEOUT_S = 30


def as_json(message):
    headers = [[name, encode(value)] for name, value in message.headers() or []]
    key, value = encode(message.key()), encode(message.value())
    position = {"p": message.partition(), "o": message.offset(), "t": message.timestamp()[1]}
    return {**position, "k": key, "v": value, "h": headers}


def result(futures):
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


class Confluent(Driver):
    def __init__(self, bootstrap):
        self.base = {"bootstrap.servers": bootstrap, "broker.address.family": "v4"}
        self.admin = AdminClient(self.base)
        self.consumer = None
        self.group = Member()
        self.txn = None
        self.is_open = False

    def do_produce(self, topic, codec, records):
        producer = Producer(
            {**self.base, "acks": "all", "compression.type": codec, "enable.idempotence": True}
        )
        offsets = [None] * len(records)

        def delivered(index):
            def report(error, message):
                offsets[index] = message.offset() if error is None else str(error)

            return report

        for index, r in enumerate(records):
            headers = [(name, decode(value)) for name, value in r["h"]]
            key, value, time = decode(r["k"]), decode(r["v"]), r.get("t", 0)
            producer.produce(
                topic, value, key, r["p"], delivered(index), timestamp=time, headers=headers
            )
        producer.flush(TIMEOUT_S)
        failed = [offset for offset in offsets if not isinstance(offset, int)]
        if failed:
            raise RuntimeError(f"not delivered: {failed}")
        return offsets

    def _consumer(self, **config):
        common = {
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
        return Consumer({**self.base, "group.id": "nobody", **common, **config})

    def do_fetch(self, topic, partition, offset, count):
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition, offset)])
        records = []
        while len(records) < count:
            for message in consumer.consume(count - len(records), 1):
                if message.error():
                    raise RuntimeError(message.error())
                records.append(as_json(message))
        consumer.close()
        return records

    def do_offset_for_time(self, topic, partition, time):
        consumer = self._consumer()
        (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, time)], TIMEOUT_S)
        consumer.close()
        return found.offset if found.offset >= 0 else -1

    def do_create(self, topic, partitions, config):
        result(self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)]))

    def do_topics(self):
        return list(self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def do_describe(self, topic):
        return len(self.admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions)

    def do_grow(self, topic, total):
        result(self.admin.create_partitions([NewPartitions(topic, total)]))

    def do_set_config(self, topic, key, value):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        result(self.admin.incremental_alter_configs([resource]))

    def do_get_config(self, topic, key):
        return result(self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[
            key
        ].value

    def do_delete_records(self, topic, partition, before):
        result(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def do_delete(self, topic):
        result(self.admin.delete_topics([topic], operation_timeout=TIMEOUT_S))

    def do_join(self, group, topic):
        timing = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
        self.consumer = self._consumer(**{"group.id": group}, **timing)
        self.group, self.member = Member(), True
        self.consumer.subscribe([topic])

    def idle(self):
        for message in self.consumer.consume(100, 0.05):
            if message.error():
                raise RuntimeError(message.error())
            self.group.records.append(as_json(message))
        self.group.partitions = [tp.partition for tp in self.consumer.assignment()]

    def do_wait(self, partitions, records):
        while not self.group.satisfied(partitions, records):
            self.idle()
        return self.group.seen()

    def do_commit(self):
        self.consumer.commit(asynchronous=False)

    def do_leave(self):
        self.member = False
        self.consumer.close()

    def do_txn_init(self, id, timeout_ms):
        config = {"transactional.id": id, "transaction.timeout.ms": timeout_ms, "linger.ms": 0}
        self.txn = Producer({**self.base, **config})
        self.txn.init_transactions(TIMEOUT_S)

    def do_txn_send(self, topic, partition, values):
        if not self.is_open:
            self.txn.begin_transaction()
            self.is_open = True
        errors = []
        for value in values:
            self.txn.produce(
                topic,
                decode(value),
                partition=partition,
                on_delivery=lambda error, _: error and errors.append(str(error)),
            )
        self.txn.flush(TIMEOUT_S)
        if errors:
            raise RuntimeError(errors[0])

    def do_txn_end(self, commit):
        self.is_open = False
        if commit:
            self.txn.commit_transaction(TIMEOUT_S)
        else:
            self.txn.abort_transaction(TIMEOUT_S)

    def do_txn_transform(self, group, source, target, count, commit):
        consumer = self._consumer(**{"group.id": group, "isolation.level": "read_committed"})
        consumer.subscribe([source])
        read = []
        while len(read) < count:
            read += consumer.consume(count - len(read), 1)
        self.txn.begin_transaction()
        for message in read:
            self.txn.produce(target, message.value() + b"!", partition=0)
        offsets = consumer.position(consumer.assignment())
        self.txn.send_offsets_to_transaction(
            [tp for tp in offsets if tp.offset >= 0], consumer.consumer_group_metadata(), TIMEOUT_S
        )
        self.do_txn_end(commit)
        consumer.close()
        return [encode(message.value()) for message in read]


if __name__ == "__main__":
    Confluent(sys.argv[1]).run()

"""kafka-python, 3.x or 2.x by what PYTHONPATH brings, under the line protocol of clients.py."""

import sys

import kafka
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from serve import Driver, Member, decode, encode

VERSION = int(kafka.__version__.split(".")[0])


def as_json(record):
    headers = [[name, encode(value)] for name, value in record.headers]
    key, value = encode(record.key), encode(record.value)
    return {
        "p": record.partition,
        "o": record.offset,
        "t": record.timestamp,
        "k": key,
        "v": value,
        "h": headers,
    }


class KafkaPython(Driver):
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = None
        self.consumer = None
        self.group = Member()
        self.txn = None
        self.is_open = False

    def _admin(self):
        self.admin = self.admin or KafkaAdminClient(bootstrap_servers=self.bootstrap)
        return self.admin

    def do_produce(self, topic, codec, records):
        codec = None if codec == "none" else codec
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", compression_type=codec, linger_ms=20
        )
        futures = []
        for r in records:
            headers = [(name, decode(value)) for name, value in r["h"]]
            key, value = decode(r["k"]), decode(r["v"])
            futures.append(producer.send(topic, value, key, headers, r["p"], r.get("t")))
        producer.flush(30)
        offsets = [future.get(30).offset for future in futures]
        producer.close()
        return offsets

    def _assigned(self, topic, partition):
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, group_id=None
        )
        consumer.assign([TopicPartition(topic, partition)])
        return consumer

    def do_fetch(self, topic, partition, offset, count):
        consumer = self._assigned(topic, partition)
        consumer.seek(TopicPartition(topic, partition), offset)
        records = []
        while len(records) < count:
            for batch in consumer.poll(1000).values():
                records += map(as_json, batch)
        consumer.close()
        return records

    def do_offset_for_time(self, topic, partition, time):
        consumer = self._assigned(topic, partition)
        (found,) = consumer.offsets_for_times({TopicPartition(topic, partition): time}).values()
        consumer.close()
        return -1 if found is None else found.offset

    def do_create(self, topic, partitions, config):
        self._admin().create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])

    def do_topics(self):
        found = self._admin().list_topics()
        return [t if isinstance(t, str) else t["name"] for t in found]

    def do_describe(self, topic):
        (found,) = self._admin().describe_topics([topic])
        return len(found["partitions"])

    def do_grow(self, topic, total):
        self._admin().create_partitions({topic: NewPartitions(total)})

    def do_set_config(self, topic, key, value):
        self._admin().alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})])

    def do_get_config(self, topic, key):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        if VERSION >= 3:
            return self._admin().describe_configs([resource])["topic"][topic][key]["value"]
        (response,) = self._admin().describe_configs([resource])
        (entries,) = [r[4] for r in response.resources]
        return {entry[0]: entry[1] for entry in entries}[key]

    def do_delete_records(self, topic, partition, before):
        self._admin().delete_records({TopicPartition(topic, partition): before})

    def do_delete(self, topic):
        self._admin().delete_topics([topic])

    def do_join(self, group, topic):
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )
        self.group, self.member = Member(), True

    def idle(self):
        # kafka-python 3.0.12 may lose sight of a JoinGroup that is answered just when a poll ends: its members then
        # stand still for good ("poll: timeout during coordinator.poll()"). Longer polls hardly ever end there.
        for batch in self.consumer.poll(500).values():
            self.group.records += map(as_json, batch)
        self.group.partitions = [tp.partition for tp in self.consumer.assignment()]

    def do_wait(self, partitions, records):
        while not self.group.satisfied(partitions, records):
            self.idle()
        return self.group.seen()

    def do_commit(self):
        self.consumer.commit()

    def do_leave(self):
        self.member = False
        self.consumer.close()

    def do_txn_init(self, id, timeout_ms):
        self.txn = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=id,
            transaction_timeout_ms=timeout_ms,
        )
        self.txn.init_transactions()

    def do_txn_send(self, topic, partition, values):
        if not self.is_open:
            self.txn.begin_transaction()
            self.is_open = True
        futures = [self.txn.send(topic, decode(value), partition=partition) for value in values]
        self.txn.flush(30)
        for future in futures:
            future.get(30)

    def do_txn_end(self, commit):
        self.is_open = False
        if commit:
            self.txn.commit_transaction()
        else:
            self.txn.abort_transaction()

    def do_txn_transform(self, group, source, target, count, commit):
        consumer = KafkaConsumer(
            source,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=count,
        )
        read = []
        while len(read) < count:
            for batch in consumer.poll(1000, max_records=count - len(read)).values():
                read += batch
        self.txn.begin_transaction()
        for record in read:
            self.txn.send(target, record.value + b"!", partition=0)
        offsets = {tp: consumer.position(tp) for tp in consumer.assignment()}
        known = {tp: self._offset(offset) for tp, offset in offsets.items() if offset is not None}
        who = consumer.group_metadata() if VERSION >= 3 else group
        self.txn.send_offsets_to_transaction(known, who)
        self.do_txn_end(commit)
        consumer.close()
        return [encode(record.value) for record in read]

    def _offset(self, offset):
        return OffsetAndMetadata(offset, "", -1)


if __name__ == "__main__":
    KafkaPython(sys.argv[1]).run()

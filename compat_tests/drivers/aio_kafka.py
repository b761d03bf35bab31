"""aiokafka under the line protocol of clients.py. Its event loop runs only inside requests and idle()."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from serve import Driver, Member, decode, encode


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


class AioKafka(Driver):
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.loop = asyncio.new_event_loop()
        self.consumer = None
        self.group = Member()
        self.txn = None
        self.is_open = False

    def __getattr__(self, name):
        if not name.startswith("do_"):
            raise AttributeError(name)
        work = getattr(self, f"a{name}")
        return lambda **arguments: self.loop.run_until_complete(work(**arguments))

    def idle(self):
        self.loop.run_until_complete(self._poll())

    async def _with_admin(self, work):
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    async def ado_produce(self, topic, codec, records):
        codec = None if codec == "none" else codec
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", compression_type=codec, linger_ms=20
        ) as producer:
            futures = []
            for r in records:
                headers = [(name, decode(value)) for name, value in r["h"]]
                content = {"key": decode(r["k"]), "value": decode(r["v"]), "headers": headers}
                futures.append(
                    await producer.send(topic, partition=r["p"], timestamp_ms=r.get("t"), **content)
                )
            return [(await future).offset for future in futures]

    async def ado_fetch(self, topic, partition, offset, count):
        where = TopicPartition(topic, partition)
        records = []
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None) as consumer:
            consumer.assign([where])
            consumer.seek(where, offset)
            while len(records) < count:
                for batch in (await consumer.getmany(timeout_ms=1000)).values():
                    records += map(as_json, batch)
        return records

    async def ado_offset_for_time(self, topic, partition, time):
        where = TopicPartition(topic, partition)
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None) as consumer:
            consumer.assign([where])
            (found,) = (await consumer.offsets_for_times({where: time})).values()
        return -1 if found is None else found.offset

    async def ado_create(self, topic, partitions, config):
        response = await self._with_admin(
            lambda admin: admin.create_topics(
                [NewTopic(topic, partitions, 1, topic_configs=config)]
            )
        )
        self._check(response.topic_errors)

    def _check(self, errors):
        failed = [error for error in errors if error[1] != 0]
        if failed:
            raise RuntimeError(f"refused: {failed}")

    async def ado_topics(self):
        return await self._with_admin(lambda admin: admin.list_topics())

    async def ado_describe(self, topic):
        (found,) = await self._with_admin(lambda admin: admin.describe_topics([topic]))
        return len(found["partitions"])

    async def ado_grow(self, topic, total):
        await self._with_admin(lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    async def ado_set_config(self, topic, key, value):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        await self._with_admin(lambda admin: admin.alter_configs([resource]))

    async def ado_get_config(self, topic, key):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = await self._with_admin(lambda admin: admin.describe_configs([resource]))
        (entries,) = [r[4] for r in response.resources]
        return {entry[0]: entry[1] for entry in entries}[key]

    async def ado_delete_records(self, topic, partition, before):
        what = {TopicPartition(topic, partition): RecordsToDelete(before_offset=before)}
        await self._with_admin(lambda admin: admin.delete_records(what))

    async def ado_delete(self, topic):
        response = await self._with_admin(lambda admin: admin.delete_topics([topic]))
        self._check(response.topic_error_codes)

    async def ado_join(self, group, topic):
        self.consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )
        await self.consumer.start()
        self.group, self.member = Member(), True

    async def _poll(self):
        for batch in (await self.consumer.getmany(timeout_ms=50)).values():
            self.group.records += map(as_json, batch)
        self.group.partitions = [tp.partition for tp in self.consumer.assignment()]

    async def ado_wait(self, partitions, records):
        while not self.group.satisfied(partitions, records):
            await self._poll()
        return self.group.seen()

    async def ado_commit(self):
        await self.consumer.commit()

    async def ado_leave(self):
        self.member = False
        await self.consumer.stop()

    async def ado_txn_init(self, id, timeout_ms):
        self.txn = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=id,
            transaction_timeout_ms=timeout_ms,
        )
        await self.txn.start()

    async def ado_txn_send(self, topic, partition, values):
        if not self.is_open:
            await self.txn.begin_transaction()
            self.is_open = True
        for value in values:
            await self.txn.send_and_wait(topic, decode(value), partition=partition)

    async def ado_txn_end(self, commit):
        self.is_open = False
        if commit:
            await self.txn.commit_transaction()
        else:
            await self.txn.abort_transaction()

    async def ado_txn_transform(self, group, source, target, count, commit):
        read = []
        async with AIOKafkaConsumer(
            source,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer:
            while len(read) < count:
                wanted = count - len(read)
                for batch in (await consumer.getmany(timeout_ms=1000, max_records=wanted)).values():
                    read += batch
            await self.txn.begin_transaction()
            for record in read:
                await self.txn.send(target, record.value + b"!", partition=0)
            offsets = {tp: await consumer.position(tp) for tp in consumer.assignment()}
            await self.txn.send_offsets_to_transaction(offsets, group)
            await self.ado_txn_end(commit)
        return [encode(record.value) for record in read]


if __name__ == "__main__":
    AioKafka(sys.argv[1]).run()

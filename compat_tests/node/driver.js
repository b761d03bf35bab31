// kafkajs under the line protocol of compat_tests/clients.py.
'use strict'

const readline = require('node:readline')
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
const kafka = new Kafka({
  clientId: 'compat',
  brokers: [process.argv[2]],
  logLevel: logLevel.ERROR,
  logCreator: () => ({ namespace, log }) => console.error(namespace, log.message, log.error ?? ''),
})

let admin
let member
let producer
let transaction
let seen
const waiting = new Set()

const decode = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const encode = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))

function asJson(partition, message) {
  const headers = []
  for (const [name, values] of Object.entries(message.headers ?? {})) {
    for (const value of [values].flat()) headers.push([name, encode(value)])
  }
  return {
    p: partition, o: Number(message.offset), t: Number(message.timestamp),
    k: encode(message.key), v: encode(message.value), h: headers,
  }
}

// kafkajs keeps headers in an object: repeated names become one list.
function headersOf(pairs) {
  const headers = {}
  for (const [name, value] of pairs) (headers[name] ??= []).push(decode(value))
  return headers
}

async function connectedAdmin() {
  if (!admin) {
    const connecting = kafka.admin()
    await connecting.connect()
    admin = connecting
  }
  return admin
}

async function consume(consumer, topic, onRecord) {
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (const message of batch.messages) {
        resolveOffset(message.offset)
        onRecord(asJson(batch.partition, message))
      }
      await heartbeat()
    },
  })
}

const words = {
  async produce({ topic, codec, records }) {
    const producer = kafka.producer()
    await producer.connect()
    const messages = records.map((r) => ({
      partition: r.p, key: decode(r.k), value: decode(r.v), headers: headersOf(r.h),
      ...(r.t === undefined ? {} : { timestamp: String(r.t) }),
    }))
    const answers = await producer.send({ topic, messages, acks: -1, compression: CODECS[codec] })
    await producer.disconnect()
    const next = new Map(answers.map((a) => [a.partition, Number(a.baseOffset)]))
    return records.map((r) => {
      const offset = next.get(r.p)
      next.set(r.p, offset + 1)
      return offset
    })
  },

  async fetch({ topic, partition, offset, count }) {
    // There is no consumer without a group in kafkajs: one of its own, and a seek.
    const groupId = `fetch-${process.pid}-${Date.now()}`
    const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100, maxBytesPerPartition: 4 << 20 })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    const records = []
    await new Promise((resolve, reject) => {
      consume(consumer, topic, (record) => {
        if (record.p !== partition || record.o < offset) return
        if (records.push(record) >= count) resolve()
      }).catch(reject)
      consumer.seek({ topic, partition, offset: String(offset) })
    })
    await consumer.disconnect()
    return records.slice(0, count)
  },

  async offset_for_time({ topic, partition, time }) {
    const offsets = await (await connectedAdmin()).fetchTopicOffsetsByTimestamp(topic, time)
    return Number(offsets.find((o) => o.partition === partition).offset)
  },

  async create({ topic, partitions, config }) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const made = await (await connectedAdmin()).createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }],
    })
    if (!made) throw new Error('the topic exists')
  },

  async topics() {
    return (await connectedAdmin()).listTopics()
  },

  async describe({ topic }) {
    const { topics } = await (await connectedAdmin()).fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length
  },

  async grow({ topic, total }) {
    await (await connectedAdmin()).createPartitions({ topicPartitions: [{ topic, count: total }] })
  },

  async set_config({ topic, key, value }) {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: key, value }] }
    await (await connectedAdmin()).alterConfigs({ validateOnly: false, resources: [resource] })
  },

  async get_config({ topic, key }) {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configNames: [key] }
    const { resources } = await (await connectedAdmin()).describeConfigs({ resources: [resource], includeSynonyms: false })
    return resources[0].configEntries.find((entry) => entry.configName === key).configValue
  },

  async delete_records({ topic, partition, before }) {
    await (await connectedAdmin()).deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
  },

  async delete({ topic }) {
    await (await connectedAdmin()).deleteTopics({ topics: [topic] })
  },

  async join({ group, topic }) {
    member = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 200, maxWaitTimeInMs: 100 })
    seen = { topic, partitions: [], records: [] }
    member.on(member.events.GROUP_JOIN, ({ payload }) => {
      seen.partitions = payload.memberAssignment[topic] ?? []
      wake()
    })
    member.on(member.events.REBALANCING, () => { seen.partitions = [] })
    await member.connect()
    await member.subscribe({ topic, fromBeginning: true })
    await consume(member, topic, (record) => {
      seen.records.push(record)
      wake()
    })
  },

  wait({ partitions, records }) {
    return new Promise((resolve) => {
      waiting.add({ partitions, records, resolve })
      wake()
    })
  },

  async commit() {
    const next = new Map()
    for (const { p, o } of seen.records) next.set(p, Math.max(next.get(p) ?? 0, o + 1))
    const held = [...next].filter(([partition]) => seen.partitions.includes(partition))
    await member.commitOffsets(held.map(([partition, offset]) => ({ topic: seen.topic, partition, offset: String(offset) })))
  },

  async leave() {
    await member.disconnect()
  },

  async txn_init({ id, timeout_ms }) {
    producer = kafka.producer({
      transactionalId: id, transactionTimeout: timeout_ms, idempotent: true, maxInFlightRequests: 1, retry: { retries: 20 },
    })
    await producer.connect()
    // kafkajs asks for its id with the first transaction; here the predecessor is fenced now.
    transaction = await producer.transaction()
  },

  async txn_send({ topic, partition, values }) {
    transaction ??= await producer.transaction()
    await transaction.send({ topic, messages: values.map((value) => ({ partition, value: decode(value) })) })
  },

  async txn_end({ commit }) {
    const ending = transaction
    transaction = undefined
    await (commit ? ending.commit() : ending.abort())
  },

  async txn_transform({ group, source, target, count, commit }) {
    const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 100, readUncommitted: false })
    await consumer.connect()
    await consumer.subscribe({ topic: source, fromBeginning: true })
    const read = []
    const next = new Map()
    await new Promise((resolve, reject) => {
      consume(consumer, source, (record) => {
        if (read.length >= count) return
        read.push(record.v)
        next.set(record.p, record.o + 1)
        if (read.length >= count) resolve()
      }).catch(reject)
    })
    await words.txn_send({ topic: target, partition: 0, values: read.map((v) => encode(`${decode(v)}!`)) })
    const partitions = [...next].map(([partition, offset]) => ({ partition, offset: String(offset) }))
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
    await words.txn_end({ commit })
    await consumer.disconnect()
    return read
  },
}

function wake() {
  for (const wanted of waiting) {
    if (seen.partitions.length === wanted.partitions && seen.records.length >= wanted.records) {
      waiting.delete(wanted)
      wanted.resolve({ partitions: seen.partitions, records: seen.records })
    }
  }
}

let queue = Promise.resolve()
const lines = readline.createInterface({ input: process.stdin })
lines.on('line', (line) => {
  queue = queue.then(async () => {
    const { do: word, ...request } = JSON.parse(line)
    let answer
    try {
      answer = { ok: (await words[word](request)) ?? null }
    } catch (error) {
      console.error(error)
      answer = { error: `${error.name}: ${error.message}` }
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`)
  })
})
lines.on('close', () => process.exit(0))

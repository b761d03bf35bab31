// node-rdkafka under the line protocol of compat_tests/clients.py: the words of transactions.
'use strict'

const readline = require('node:readline')
const { KafkaConsumer, Producer } = require('node-rdkafka')

const TIMEOUT_MS = 30_000
const base = { 'metadata.broker.list': process.argv[2], 'broker.address.family': 'v4' }

let producer
let isOpen = false
let failures = []

const encode = (data) => Buffer.from(data).toString('base64')
const decode = (text) => Buffer.from(text, 'base64')

// The outcome of a method that takes a callback of (error, result) last.
function called(object, method, ...args) {
  return new Promise((resolve, reject) => {
    object[method](...args, (error, result) => (error ? reject(error) : resolve(result)))
  })
}

const words = {
  async txn_init({ id, timeout_ms }) {
    const config = { 'transactional.id': id, 'transaction.timeout.ms': timeout_ms, 'linger.ms': 0, dr_cb: true }
    producer = new Producer({ ...base, ...config })
    producer.on('delivery-report', (error) => { if (error) failures.push(error) })
    producer.on('event.error', (error) => console.error(error))
    producer.setPollInterval(20)
    await called(producer, 'connect', {})
    await called(producer, 'initTransactions', TIMEOUT_MS)
  },

  async txn_send({ topic, partition, values }) {
    if (!isOpen) await called(producer, 'beginTransaction')
    isOpen = true
    for (const value of values) producer.produce(topic, partition, decode(value))
    await called(producer, 'flush', TIMEOUT_MS)
    const [failure] = failures
    failures = []
    if (failure) throw failure
  },

  async txn_end({ commit }) {
    isOpen = false
    await called(producer, commit ? 'commitTransaction' : 'abortTransaction', TIMEOUT_MS)
  },

  async txn_transform({ group, source, target, count, commit }) {
    const config = { 'group.id': group, 'isolation.level': 'read_committed', 'enable.auto.commit': false }
    const consumer = new KafkaConsumer({ ...base, ...config }, { 'auto.offset.reset': 'earliest' })
    await called(consumer, 'connect', {})
    consumer.subscribe([source])
    const read = []
    while (read.length < count) read.push(...await called(consumer, 'consume', count - read.length))
    const next = new Map(read.map((message) => [message.partition, message.offset + 1]))
    await words.txn_send({ topic: target, partition: 0, values: read.map((m) => encode(`${m.value}!`)) })
    const offsets = [...next].map(([partition, offset]) => ({ topic: source, partition, offset }))
    await called(producer, 'sendOffsetsToTransaction', offsets, consumer, TIMEOUT_MS)
    await words.txn_end({ commit })
    await called(consumer, 'disconnect')
    return read.map((message) => encode(message.value))
  },
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

// kafkajs at a listener that asks for TLS and log-ins: the words of compat_tests/locks/__init__.py.
'use strict'

const fs = require('node:fs')
const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

function options({ servers, ca, own, mechanism, user, password }) {
  const ssl = { ca: [fs.readFileSync(ca, 'utf8')] }
  if (own) ssl.cert = ssl.key = fs.readFileSync(own, 'utf8')
  const sasl = mechanism ? { mechanism: mechanism.toLowerCase(), username: user, password } : undefined
  return {
    clientId: 'locks', brokers: [servers], ssl, sasl, logLevel: logLevel.NOTHING,
    retry: { retries: 0 }, connectionTimeout: 5000, authenticationTimeout: 5000,
  }
}

async function attempt(request) {
  const kafka = new Kafka(options(request))
  const producer = kafka.producer({ allowAutoTopicCreation: false })
  const consumer = kafka.consumer({ groupId: `reads-${request.value}`, retry: { retries: 5 } })
  try {
    await producer.connect()
    await producer.send({ topic: request.topic, messages: [{ value: request.value }] })
    await consumer.connect()
    await consumer.subscribe({ topic: request.topic, fromBeginning: true })
    await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error('nothing read')), 8000).unref()
      consumer.run({
        eachMessage: async ({ message }) => { if (message.value.toString() === request.value) resolve() },
      })
    })
    return { kind: 'in', text: '' }
  } catch (error) {
    const cause = error.cause ?? error.originalError
    const code = error.code ?? cause?.code
    const reason = String(code ?? '').replace(/^ERR_SSL_.*ALERT_.*/, 'alert of TLS') // which one differs
    return { kind: [error.name, reason].filter(Boolean).join(' '), text: String(error.message) }
  } finally {
    await consumer.disconnect().catch(() => {})
    await producer.disconnect().catch(() => {})
  }
}

const lines = readline.createInterface({ input: process.stdin })
let last = Promise.resolve()
lines.on('line', (line) => {
  last = last.then(async () => process.stdout.write(`${JSON.stringify({ ok: await attempt(JSON.parse(line)) })}\n`))
})
lines.on('close', () => last.then(() => process.exit(0)))

// What a user does with kafkajs, step by step: main.js BROKER STEP [COUNT]. Prints ok, or ends with what was wrong.
'use strict'
const assert = require('node:assert')
const lz4 = require('lz4js')
const zstd = require('@mongodb-js/zstd')
const snappy = require('kafkajs-snappy')
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')

const [broker, step, third] = process.argv.slice(2)
// A member whose join was answered by a broker that died is waited for by the others, no longer than this.
const timeouts = { sessionTimeout: 6000, rebalanceTimeout: 10000, heartbeatInterval: 500 }
const patience = 60000 // ms without progress after which a step has failed
const kafka = new Kafka({
  brokers: [broker],
  logLevel: logLevel.NOTHING,
  retry: { retries: 60, initialRetryTime: 50, maxRetryTime: 300 },
})

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zstd.compress(encoder.buffer, 3),
  decompress: async buffer => zstd.decompress(buffer),
})

const pause = ms => new Promise(resolve => setTimeout(resolve, ms))
const values = (prefix, from, to) => Array.from({ length: to - from }, (_, i) => prefix + (from + i))
const messages = all => all.map(value => ({ key: value, value }))

function same(got, want) {
  const text = `${got.length} records, ${new Set(got).size} of them distinct, want ${want.length}`
  assert.deepStrictEqual([...got].sort(), [...want].sort(), text)
}

// until waits until a condition holds; each change of its text is progress.
async function until(holds, text) {
  let before, since = Date.now()
  while (!holds()) {
    const now = text()
    if (now !== before) {
      before = now
      since = Date.now()
    }
    assert(Date.now() - since < patience, 'no progress: ' + now)
    await pause(20)
  }
}

// again calls f until it works: much of the client gives up when the broker goes away in the midst of it.
async function again(f) {
  for (const since = Date.now(); ;) {
    try {
      return await f()
    } catch (e) {
      if (Date.now() - since > patience) {
        throw e
      }
      console.error('again after', e.message)
      await pause(100)
    }
  }
}

async function topic(name, numPartitions) {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic: name, numPartitions, replicationFactor: 1 }] })
  await admin.disconnect()
}

async function send(name, all, options = {}, compression = CompressionTypes.None) {
  const producer = kafka.producer(options)
  await producer.connect()
  const sent = []
  for (let i = 0; i < all.length; i += 100) {
    sent.push(...(await producer.send({ topic: name, messages: messages(all.slice(i, i + 100)), compression })))
  }
  await producer.disconnect()
  return sent
}

// read reads n values as the only member of a new group, committing each batch.
async function read(name, n, { groupId = 'reader-' + name, readUncommitted = false } = {}) {
  const consumer = kafka.consumer({ groupId, readUncommitted, maxWaitTimeInMs: 200, ...timeouts })
  await again(() => consumer.connect())
  await again(() => consumer.subscribe({ topics: [name], fromBeginning: true }))
  const got = []
  await consumer.run({ eachMessage: async ({ message }) => { got.push(message.value.toString()) } })
  await until(() => got.length >= n, () => `${got.length} of ${n} records`)
  await consumer.disconnect()
  return got
}

async function produce() {
  const want = values('v', 0, 1000)
  for (const name of ['None', 'GZIP', 'Snappy', 'LZ4', 'ZSTD']) {
    await topic('kjs-' + name, 1)
    await send('kjs-' + name, want, {}, CompressionTypes[name])
    assert.deepStrictEqual(await read('kjs-' + name, want.length), want, name)
  }
}

async function idempotence() {
  await topic('kjs-idempotent', 1)
  const want = values('v', 0, 2000)
  const sent = await send('kjs-idempotent', want, { idempotent: true, maxInFlightRequests: 1 })
  assert.deepStrictEqual(sent.map(s => s.baseOffset), values('', 0, 20).map(i => String(100 * i)))
  assert.deepStrictEqual(await read('kjs-idempotent', want.length), want)
}

// copy copies one partition in transactions of ten records with the group's offset among them; each third is aborted and done
// again. After an error of unknown outcome a new producer ends what is open, and the group's offset says what was committed.
async function copy(from, to, count, wait = 0) {
  const admin = kafka.admin()
  await again(() => admin.connect())
  const committed = () => again(async () => {
    const [found] = await admin.fetchOffsets({ groupId: from, topics: [from] })
    return Math.max(0, Number(found.partitions[0].offset))
  })
  let producer, done = 0, attempts = 0
  const begin = () => again(async () => {
    producer = kafka.producer({ transactionalId: to, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
  })
  await begin()
  const transaction = async batch => {
    attempts++
    const next = String(Number(batch[batch.length - 1].offset) + 1)
    const txn = await producer.transaction()
    try {
      await txn.send({ topic: to, messages: batch.map(({ key, value }) => ({ key, value })) })
      await txn.sendOffsets({ consumerGroupId: from, topics: [{ topic: from, partitions: [{ partition: 0, offset: next }] }] })
    } catch (e) {
      await txn.abort()
      throw e
    }
    if (attempts % 3 === 0) {
      await txn.abort()
    } else {
      await txn.commit()
    }
  }
  const consumer = kafka.consumer({ groupId: from, maxWaitTimeInMs: 200, ...timeouts })
  await again(() => consumer.connect())
  await again(() => consumer.subscribe({ topics: [from], fromBeginning: true }))
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      let rest = batch.messages
      for (;;) {
        done = await committed()
        rest = rest.filter(m => Number(m.offset) >= done)
        if (rest.length === 0) {
          return
        }
        try {
          await transaction(rest.slice(0, 10))
          await pause(wait)
        } catch (e) {
          console.error('at', done, 'again after', e.message)
          await producer.disconnect().catch(() => {})
          await begin() // what is open has ended before the offset is asked for
        }
        await heartbeat().catch(() => {})
      }
    },
  })
  await until(() => done === count, () => `${done} copied`)
  await consumer.disconnect()
  await producer.disconnect()
  await admin.disconnect()
  return attempts
}

async function transactions() {
  await topic('kjs-in', 1)
  await topic('kjs-out', 2)
  await send('kjs-in', values('v', 0, 300))
  const attempts = await copy('kjs-in', 'kjs-out', 300)
  assert(attempts > 30, 'nothing was aborted')
  same(await read('kjs-out', 300, { groupId: 'kjs-clean' }), values('v', 0, 300))
  await read('kjs-out', 310, { groupId: 'kjs-dirty', readUncommitted: true })
}

async function committed() {
  same(await read('aborted', Number(third)), values('kept-', 0, Number(third)))
}

async function groups() {
  const name = 'kjs-group'
  await topic(name, 2)
  await send(name, values('v', 0, 200))
  const got = new Set(), shares = [[], []]
  const join = async i => {
    const consumer = kafka.consumer({ groupId: name, heartbeatInterval: 500, maxWaitTimeInMs: 200 })
    consumer.on(consumer.events.GROUP_JOIN, e => { shares[i] = e.payload.memberAssignment[name] || [] })
    await consumer.connect()
    await consumer.subscribe({ topics: [name], fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => { got.add(message.value.toString()) } })
    return consumer
  }
  const members = [await join(0), await join(1)]
  await until(() => got.size === 200 && shares[0].length === 1 && shares[1].length === 1,
    () => `${got.size} records, ${JSON.stringify(shares)}`)
  assert.notDeepStrictEqual(shares[0], shares[1], 'two members have one partition')
  for (const member of members) {
    await member.disconnect()
  }
  await send(name, values('v', 200, 250))
  same(await read(name, 50, { groupId: name }), values('v', 200, 250))
}

async function admin() {
  const a = kafka.admin()
  await a.connect()
  const name = 'kjs-admin', groupId = 'kjs-admins'
  await topic(name, 1)
  await a.createPartitions({ topicPartitions: [{ topic: name, count: 2 }] })
  const meta = await a.fetchTopicMetadata({ topics: [name] })
  assert.strictEqual(meta.topics[0].partitions.length, 2)
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: name, messages: values('v', 0, 5).map(value => ({ value, partition: 1 })) })
  await producer.disconnect()
  const offsets = async () => (await a.fetchTopicOffsets(name)).find(o => o.partition === 1)
  assert.strictEqual((await offsets()).high, '5')
  await a.setOffsets({ groupId, topic: name, partitions: [{ partition: 1, offset: '4' }] })
  const [found] = await a.fetchOffsets({ groupId, topics: [name] })
  assert.strictEqual(found.partitions.find(p => p.partition === 1).offset, '4')
  assert((await a.listGroups()).groups.some(g => g.groupId === groupId))
  assert.strictEqual((await a.describeGroups([groupId])).groups[0].state, 'Empty')
  const configs = await a.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name }] })
  assert(configs.resources[0].configEntries.length > 0)
  await a.deleteTopicRecords({ topic: name, partitions: [{ partition: 1, offset: '3' }] })
  assert.strictEqual((await offsets()).low, '3')
  await a.deleteGroups([groupId])
  await a.deleteTopics({ topics: [name] })
  assert(!(await a.listTopics()).includes(name))
  await a.disconnect()
}

// prepare makes what the kills need.
async function prepare() {
  await topic('kjs-killed', 1)
  await topic('kjs-kills-in', 1)
  await topic('kjs-kills-out', 2)
  await send('kjs-kills-in', values('v', 0, 300))
}

// kills sends idempotent records and copies in transactions while somebody else kills the broker.
async function kills() {
  const want = values('v', 0, 600)
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await again(() => producer.connect())
  for (const value of want) {
    await producer.send({ topic: 'kjs-killed', messages: [{ value }] })
  }
  await producer.disconnect()
  assert.deepStrictEqual(await read('kjs-killed', want.length), want)
  await copy('kjs-kills-in', 'kjs-kills-out', 300, 50)
  same(await read('kjs-kills-out', 300, { groupId: 'kjs-kills-clean' }), values('v', 0, 300))
}

const steps = { produce, idempotence, transactions, committed, groups, admin, prepare, kills }
steps[step]().then(() => {
  console.log('ok')
  process.exit(0)
}, e => {
  console.error(e)
  process.exit(1)
})

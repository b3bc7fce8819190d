"""A transactional copy on librdkafka: init, send, send offsets, commit, abort.

Reads N records from a topic in transactions of ten, writes each to the output topic with the offsets in the
transaction, aborts every third transaction and repeats it. Exit 0 when the output, read_committed, is the input.
"""
import sys
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

brokers, count = sys.argv[1], int(sys.argv[2])
source, sink = "rdkafka-in", "rdkafka-out"
group = "rdkafka-copy"

admin = AdminClient({"bootstrap.servers": brokers})
for future in admin.create_topics([NewTopic(source, 3, 1), NewTopic(sink, 2, 1)]).values():
    future.result(30)

loader = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
for i in range(count):
    loader.produce(source, key=str(i), value="v%d" % i)
    loader.poll(0)
assert loader.flush(30) == 0, "records left unsent"


def consumer(topic, group_id, **more):
    c = Consumer({
        "bootstrap.servers": brokers, "group.id": group_id, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "isolation.level": "read_committed", **more})
    c.subscribe([topic])
    return c


def take(c, n, deadline_polls=600):
    got, idle = [], 0
    while len(got) < n:
        m = c.poll(0.1)
        if m is None:
            idle += 1
            assert idle < deadline_polls, "only %d of %d records arrived" % (len(got), n)
            continue
        assert m.error() is None, m.error()
        got.append(m)
    return got


reader = consumer(source, group)
producer = Producer({"bootstrap.servers": brokers, "transactional.id": "rdkafka-copier"})
producer.init_transactions(30)
done, attempt, aborted = 0, 0, 0
while done < count:
    batch = take(reader, min(10, count - done))
    while True:
        attempt += 1
        producer.begin_transaction()
        ends = {}
        for m in batch:
            producer.produce(sink, key=m.key(), value=m.value())
            ends[(m.topic(), m.partition())] = m.offset() + 1
        producer.send_offsets_to_transaction(
            [TopicPartition(t, p, o) for (t, p), o in ends.items()], reader.consumer_group_metadata(), 30)
        if attempt % 3 == 0:
            assert producer.flush(30) == 0  # else the abort drops what was not sent yet
            producer.abort_transaction(30)
            aborted += len(batch)
            continue
        producer.commit_transaction(30)
        break
    done += len(batch)

committed = reader.committed([TopicPartition(source, p) for p in range(3)], 30)
assert sum(max(0, t.offset) for t in committed) == count, committed
reader.close()

got = [m.value().decode() for m in take(consumer(sink, uuid.uuid4().hex), count)]
want = sorted("v%d" % i for i in range(count))
assert sorted(got) == want, "output differs: %d records, %d distinct" % (len(got), len(set(got)))
dirty = consumer(sink, uuid.uuid4().hex, **{"isolation.level": "read_uncommitted"})
take(dirty, count + aborted)  # read_uncommitted shows aborted records too
print("ok %d records, %d transactions" % (count, attempt))

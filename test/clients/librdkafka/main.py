"""What a user does with librdkafka from Python, step by step: main.py BROKER STEP. Prints ok, or ends with what was wrong."""
import os
import sys
import threading
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec

BROKER = sys.argv[1]
PATIENCE = 60  # seconds without a record after which a step has failed


def producer(**more):
    return Producer({"bootstrap.servers": BROKER, **{k.replace("_", "."): v for k, v in more.items()}})


def consumer(topic, group, **more):
    c = Consumer({"bootstrap.servers": BROKER, "group.id": group, "auto.offset.reset": "earliest",
                  "enable.auto.commit": False, **{k.replace("_", "."): v for k, v in more.items()}})
    c.subscribe([topic])
    return c


def isolated(level):
    return {"isolation.level": level}


def topic(name, partitions):
    a = AdminClient({"bootstrap.servers": BROKER})
    a.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


def send(p, name, values, pause=0.0):
    failed = []
    for v in values:
        while True:
            try:
                p.produce(name, key=v, value=v, on_delivery=lambda e, _: e and failed.append(e))
                break
            except BufferError:
                p.poll(0.1)
        p.poll(0)
        time.sleep(pause)
    assert p.flush(60) == 0, "records left unsent"
    assert not failed, failed[0]


def values(first, end):
    return ["v%d" % i for i in range(first, end)]


def take(c, n):
    """The next n records of a consumer."""
    got, until = [], time.monotonic() + PATIENCE
    while len(got) < n:
        assert time.monotonic() < until, "%d of %d records arrived" % (len(got), n)
        m = c.poll(0.2)
        if m is None or m.error() is not None and m.error().retriable():
            continue
        assert m.error() is None, m.error()
        got.append(m)
        until = time.monotonic() + PATIENCE
    return got


def same(got, want):
    got = sorted(m.value().decode() for m in got)
    assert got == sorted(want), "%d records, %d of them distinct, want %d" % (len(got), len(set(got)), len(want))


def produce():
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        name = "rd-" + codec
        send(producer(compression_codec=codec), name, values(0, 1000))
        got = take(consumer(name, name), 1000)
        assert [m.value().decode() for m in got] == values(0, 1000), codec + ": the records differ"


def idempotence():
    send(producer(enable_idempotence=True, batch_num_messages=50), "rd-idempotent", values(0, 2000))
    got = take(consumer("rd-idempotent", "rd-idempotent"), 2000)
    assert [(m.offset(), m.value().decode()) for m in got] == list(enumerate(values(0, 2000)))


def copy(source, sink, count, pause=0.0):
    """Copies in transactions of ten with the offsets among them; each third is aborted and done again."""
    reader = consumer(source, source, **isolated("read_committed"))
    p = batch = lost = None
    done, attempt, since = 0, 0, time.monotonic()
    while done < count:
        assert time.monotonic() - since < PATIENCE, "no progress at %d" % done
        try:
            if p is None:
                p = producer(transactional_id=sink)
                retriable(p.init_transactions)
                lost = True
            if lost:  # only now: offsets of a transaction that is open are waited for
                back(reader)
                done, batch, lost = sum(max(0, t.offset) for t in offsets(reader, source)), None, False
                continue
            if batch is None:
                batch = take(reader, min(10, count - done))
            attempt += 1
            p.begin_transaction()
            ends = {}
            for m in batch:
                p.produce(sink, key=m.key(), value=m.value())
                ends[m.partition()] = m.offset() + 1
            bounded(p.send_offsets_to_transaction,
                    [TopicPartition(source, q, o) for q, o in ends.items()], reader.consumer_group_metadata(), 30)
            if attempt % 3 == 0:
                assert p.flush(30) == 0  # else the abort drops what was not sent yet
                p.abort_transaction(30)
                continue
            retriable(p.commit_transaction)
            done, batch, since = done + len(batch), None, time.monotonic()
            time.sleep(pause)
        except (KafkaException, Hung) as e:
            print("again after", e, file=sys.stderr)
            if isinstance(e, KafkaException) and e.args[0].txn_requires_abort():
                retriable(p.abort_transaction)
            else:
                p = None  # a new producer ends what is open, and the offsets say what was committed
            lost = True
    assert sum(max(0, t.offset) for t in offsets(reader, source)) == count
    reader.close()
    return attempt


def retriable(call):
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return bounded(call, 30)
        except KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > until:
                raise


class Hung(Exception):
    pass


def bounded(call, *args):
    """Calls, but not for longer than 10 seconds. After a lost connection to a group's coordinator librdkafka may never send
    the TxnOffsetCommit that a send_offsets_to_transaction waits for, and that call passes its own timeout."""
    done = []

    def run():
        try:
            done.append((call(*args), None))
        except BaseException as e:
            done.append((None, e))

    t = threading.Thread(target=run, daemon=True)
    t.start()
    t.join(10)
    if not done:
        raise Hung("%s does not return" % call.__name__)
    result, failed = done[0]
    if failed is not None:
        raise failed
    return result


def offsets(reader, source):
    return reader.committed([TopicPartition(source, q) for q in range(2)], 30)


def back(reader):
    """Sets a reader to what its group has committed."""
    for t in reader.committed(reader.assignment(), 30) if reader.assignment() else []:
        reader.seek(TopicPartition(t.topic, t.partition, max(0, t.offset)))


def transactions():
    topic("rd-in", 2)
    topic("rd-out", 2)
    send(producer(), "rd-in", values(0, 300))
    attempts = copy("rd-in", "rd-out", 300)
    assert attempts > 30, "nothing was aborted"
    same(take(consumer("rd-out", "rd-clean", **isolated("read_committed")), 300), values(0, 300))
    take(consumer("rd-out", "rd-dirty", **isolated("read_uncommitted")), 310)


def committed():
    count = int(sys.argv[3])
    same(take(consumer("aborted", "rd-committed", **isolated("read_committed")), count), ["kept-%d" % i for i in range(count)])


def group(protocol):
    name = "rd-group-" + protocol
    topic(name, 2)
    send(producer(), name, values(0, 200))
    got, shares, over = [], [None, None], threading.Event()

    def member(i):
        c = consumer(name, name, group_protocol=protocol)
        while not over.is_set():
            m = c.poll(0.1)
            if m is not None and m.error() is None:
                got.append(m)
                c.commit(m, asynchronous=False)
            shares[i] = [t.partition for t in c.assignment()]
        c.close()

    threads = [threading.Thread(target=member, args=(i,), daemon=True) for i in range(2)]
    for t in threads:
        t.start()
    until = time.monotonic() + PATIENCE
    while len({m.value() for m in got}) < 200 or sorted(shares[0] or []) + sorted(shares[1] or []) not in ([0, 1], [1, 0]):
        assert time.monotonic() < until, "%s, %d records" % (shares, len(got))
        time.sleep(0.05)
    assert shares[0] != shares[1], "two members have one partition"
    over.set()
    for t in threads:
        t.join()
    send(producer(), name, values(200, 250))
    same(take(consumer(name, name, group_protocol=protocol), 50), values(200, 250))


def groups():
    group("classic")


def consumers():
    group("consumer")


def admin():
    a = AdminClient({"bootstrap.servers": BROKER})
    topic("rd-admin", 2)
    a.create_partitions([NewPartitions("rd-admin", 3)])["rd-admin"].result(30)
    assert len(a.list_topics("rd-admin", 30).topics["rd-admin"].partitions) == 3
    p = producer()
    for _ in range(5):
        p.produce("rd-admin", b"x", partition=1)
    assert p.flush(30) == 0
    tp = TopicPartition("rd-admin", 1)

    def offset(spec):
        return a.list_offsets({tp: spec})[tp].result(30).offset

    assert offset(OffsetSpec.latest()) == 5
    c = consumer("rd-admin", "rd-admins")
    take(c, 5)
    c.commit(asynchronous=False)
    c.close()
    found = a.list_consumer_group_offsets([ConsumerGroupTopicPartitions("rd-admins")])["rd-admins"].result(30)
    assert [t.offset for t in found.topic_partitions if t.partition == 1] == [5], found.topic_partitions
    assert "rd-admins" in [g.group_id for g in a.list_consumer_groups().result(30).valid]
    assert a.describe_consumer_groups(["rd-admins"])["rd-admins"].result(30).state.name == "EMPTY"
    resource = ConfigResource(ConfigResource.Type.TOPIC, "rd-admin")
    assert "retention.ms" in a.describe_configs([resource])[resource].result(30)
    a.delete_records([TopicPartition("rd-admin", 1, 3)])[tp].result(30)
    assert offset(OffsetSpec.earliest()) == 3
    a.delete_consumer_groups(["rd-admins"])["rd-admins"].result(30)
    a.delete_topics(["rd-admin"])["rd-admin"].result(30)
    assert "rd-admin" not in a.list_topics(timeout=30).topics


def kills():
    """Records with and without transactions, while somebody else kills the broker."""
    send(producer(enable_idempotence=True), "rd-killed", values(0, 1000), pause=0.001)
    got = take(consumer("rd-killed", "rd-killed"), 1000)
    assert [m.value().decode() for m in got] == values(0, 1000), "the records differ"
    copy("rd-kills-in", "rd-kills-out", 300, pause=0.05)
    same(take(consumer("rd-kills-out", "rd-kills-clean", **isolated("read_committed")), 300), values(0, 300))


def prepare():
    """What the kills need."""
    for name, partitions in (("rd-kills-in", 2), ("rd-kills-out", 2), ("rd-killed", 1)):
        topic(name, partitions)
    send(producer(), "rd-kills-in", values(0, 300))


steps = (produce, idempotence, transactions, committed, groups, consumers, admin, prepare, kills)
{f.__name__: f for f in steps}[sys.argv[2]]()
print("ok", flush=True)
os._exit(0)  # not held up by a call that hangs

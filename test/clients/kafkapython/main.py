"""What a user does with kafka-python, step by step: main.py BROKER STEP. Prints ok, or ends with what was wrong."""
import os
import sys
import threading
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

BROKER = sys.argv[1]
PATIENCE = 60  # seconds without a record after which a step has failed
# A rebalance that takes longer than one poll is lost by this client now and then: the member has its assignment and never
# takes it up. So a poll is long.
POLL = 3000


def again(make):
    """The client refuses to begin while no broker is up; a user tries again."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return make()
        except KafkaError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def producer(**more):
    return again(lambda: KafkaProducer(bootstrap_servers=BROKER, acks="all", **more))


def consumer(*topics, group=None, **more):
    return again(lambda: KafkaConsumer(
        *topics, bootstrap_servers=BROKER, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, **more))


def topic(name, partitions):
    admin = KafkaAdminClient(bootstrap_servers=BROKER)
    admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}})
    admin.close()


def take(c, n):
    """The next n records of a consumer."""
    got, until = [], time.monotonic() + PATIENCE
    while len(got) < n:
        assert time.monotonic() < until, "%d of %d records arrived" % (len(got), n)
        for records in c.poll(timeout_ms=POLL, max_records=n - len(got)).values():
            got.extend(records)
            until = time.monotonic() + PATIENCE
    return got


def same(got, want):
    got = sorted(r.value.decode() for r in got)
    assert got == sorted(want), "%d records, %d of them distinct, want %d" % (len(got), len(set(got)), len(want))


def produce():
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        name = "kp-%s" % codec
        p = producer(compression_type=codec, enable_idempotence=False)
        for i in range(1000):
            p.send(name, key=b"k%d" % i, value=b"v%d" % i, headers=[("h", b"%d" % i)])
        p.flush(30)
        got = take(consumer(name), 1000)
        assert [(r.key, r.value, r.headers[0][1]) for r in got] == [
            (b"k%d" % i, b"v%d" % i, b"%d" % i) for i in range(1000)], "%s: the records differ" % codec


def idempotence():
    p = producer(enable_idempotence=True, batch_size=2000)
    sent = [p.send("kp-idempotent", b"v%d" % i) for i in range(2000)]
    p.flush(30)
    assert [f.get(1).offset for f in sent] == list(range(2000)), "offsets differ"
    assert [r.value for r in take(consumer("kp-idempotent"), 2000)] == [b"v%d" % i for i in range(2000)]


def bounded(call, *args):
    """A call of a transactional producer, which this client may never end when the broker was killed in the midst of it."""
    box = []

    def work():
        try:
            box.append((call(*args), None))
        except Exception as e:
            box.append((None, e))

    t = threading.Thread(target=work, daemon=True)
    t.start()
    t.join(10)
    if not box:
        raise KafkaError("%s does not end" % call.__name__)
    if box[0][1] is not None:
        raise box[0][1]
    return box[0][0]


def copy(source, sink, count, pause=0.0):
    """Copies in transactions of ten with the offsets among them; each third is aborted and done again."""
    reader = consumer(source, group=source, isolation_level="read_committed")
    transactional = None
    done, attempt, since = 0, 0, time.monotonic()
    while done < count:
        assert time.monotonic() - since < PATIENCE, "no progress at %d" % done
        try:
            if transactional is None:
                transactional = producer(transactional_id=sink, linger_ms=1)
                bounded(transactional.init_transactions)
                done = back(reader, source)  # only now: offsets of a transaction that is open are waited for
            batch = take(reader, min(10, count - done))
            attempt += 1
            transactional.begin_transaction()
            for r in batch:
                transactional.send(sink, key=r.key, value=r.value)
            ends = {TopicPartition(r.topic, r.partition): OffsetAndMetadata(r.offset + 1, "", -1) for r in batch}
            bounded(transactional.send_offsets_to_transaction, ends, reader.group_metadata())
            if attempt % 3 == 0:
                bounded(transactional.flush)
                bounded(transactional.abort_transaction)
                back(reader)
                continue
            bounded(transactional.commit_transaction)
            done += len(batch)
            since = time.monotonic()
            time.sleep(pause)
        except ProducerFencedError:
            raise
        except (KafkaError, AssertionError) as e:
            # The outcome is unknown or an abort: a new producer ends what is open, and the offsets say what was committed.
            print("again after", repr(e), file=sys.stderr)
            if transactional is not None:
                old, transactional = transactional, None
                threading.Thread(target=old.close, args=(1,), daemon=True).start()
    reader.close()
    return attempt


def back(reader, source=None):
    """Sets a reader to what its group has committed, and says how much that is."""
    while True:
        try:
            total = 0
            for tp in reader.assignment() if source is None else [TopicPartition(source, p) for p in range(2)]:
                offset = reader.committed(tp) or 0
                total += offset
                if tp in reader.assignment():
                    reader.seek(tp, offset)
            return total
        except KafkaError as e:
            print("again after", repr(e), file=sys.stderr)
            time.sleep(0.1)


def load(name, count):
    topic(name, 2)
    p = producer()
    for i in range(count):
        p.send(name, key=b"%d" % i, value=b"v%d" % i)
    p.flush(30)


def transactions():
    load("kp-in", 300)
    topic("kp-out", 2)
    attempts = copy("kp-in", "kp-out", 300)
    assert attempts > 30, "nothing was aborted"
    same(take(consumer("kp-out", isolation_level="read_committed"), 300), ["v%d" % i for i in range(300)])
    take(consumer("kp-out"), 310)  # read_uncommitted shows aborted ones too


def committed():
    count = int(sys.argv[3])
    c = consumer("aborted", isolation_level="read_committed")
    same(take(c, count), ["kept-%d" % i for i in range(count)])


def groups():
    load("kp-group", 200)
    got, shares, over = [], [None, None], threading.Event()

    def member(i):
        c = consumer("kp-group", group="kp-members")
        while not over.is_set():
            for records in c.poll(timeout_ms=POLL).values():
                got.extend(r.value for r in records)
                c.commit()
            shares[i] = c.assignment()
        c.close()

    threads = [threading.Thread(target=member, args=(i,), daemon=True) for i in range(2)]
    for t in threads:
        t.start()
    until = time.monotonic() + PATIENCE
    while len(set(got)) < 200 or not all(s and len(s) == 1 for s in shares):
        assert time.monotonic() < until, "%s, %d records" % (shares, len(got))
        time.sleep(0.05)
    assert shares[0] != shares[1], "two members have one partition"
    over.set()
    for t in threads:
        t.join()
    assert set(got) == {b"v%d" % i for i in range(200)}
    p = producer()
    for i in range(200, 250):
        p.send("kp-group", b"v%d" % i)
    p.flush(30)
    same(take(consumer("kp-group", group="kp-members"), 50), ["v%d" % i for i in range(200, 250)])


def admin():
    a = KafkaAdminClient(bootstrap_servers=BROKER)
    topic("kp-admin", 2)
    assert len(a.describe_topics(["kp-admin"])[0]["partitions"]) == 2
    a.create_partitions({"kp-admin": 3})
    p = producer()
    for i in range(5):
        p.send("kp-admin", b"x", partition=1).get(30)
    tp = TopicPartition("kp-admin", 1)
    assert a.list_partition_offsets({tp: -1})[tp].offset == 5
    c = consumer("kp-admin", group="kp-admins")
    take(c, 5)
    c.commit()
    c.close()
    assert a.list_group_offsets({"kp-admins": None})["kp-admins"][tp].offset == 5
    assert "kp-admins" in [g["group_id"] for g in a.list_groups()]
    assert a.describe_groups(["kp-admins"])["kp-admins"]["group_state"] == "Empty"
    a.delete_records({tp: 3})
    assert a.list_partition_offsets({tp: -2})[tp].offset == 3
    a.list_transactions()
    a.delete_groups(["kp-admins"])
    a.delete_topics(["kp-admin"])
    assert "kp-admin" not in a.list_topics()


def kills():
    """Records with and without transactions, while somebody else kills the broker."""
    p = producer(enable_idempotence=True, linger_ms=5)
    for i in range(1000):
        p.send("kp-killed", b"v%d" % i)
        time.sleep(0.001)
    p.flush(60)
    assert [r.value for r in take(consumer("kp-killed"), 1000)] == [b"v%d" % i for i in range(1000)], "the records differ"
    copy("kp-kills-in", "kp-kills-out", 300, pause=0.05)
    same(take(consumer("kp-kills-out", isolation_level="read_committed"), 300), ["v%d" % i for i in range(300)])


def prepare():
    """What the kills need."""
    load("kp-kills-in", 300)
    topic("kp-kills-out", 2)
    topic("kp-killed", 1)


{f.__name__: f for f in (produce, idempotence, transactions, committed, groups, admin, prepare, kills)}[sys.argv[2]]()
print("ok", flush=True)
os._exit(0)  # threads of producers that were given up may go on for minutes

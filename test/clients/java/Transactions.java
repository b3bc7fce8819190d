import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** A transactional producer and readers of both isolation levels. Arguments: bootstrap server, prefix of names. */
public final class Transactions {
    private static final int PARTITIONS = 3;

    private final String name;

    private Transactions(String name) {
        this.name = name;
    }

    public static void main(String[] args) throws Exception {
        Checks.bootstrap = args[0];
        Transactions t = new Transactions(args[1]);
        Checks.together(() -> t.commitsAndAborts("none"), () -> t.commitsAndAborts("gzip"), () -> t.commitsAndAborts("snappy"),
            () -> t.commitsAndAborts("lz4"), () -> t.commitsAndAborts("zstd"), t::openTransaction, t::fencedBySuccessor,
            t::fencedByAdmin, t::timeout);
        System.out.println("ok");
    }

    /** Every third transaction is aborted; each spans all partitions, in many batches. */
    private void commitsAndAborts(String codec) throws Exception {
        String topic = name + "-" + codec;
        Checks.create(topic, PARTITIONS);
        Map<Integer, List<String>> committed = new HashMap<>();
        Map<Integer, List<String>> all = new HashMap<>();
        for (int p = 0; p < PARTITIONS; p++) {
            committed.put(p, new ArrayList<>());
            all.put(p, new ArrayList<>());
        }
        try (KafkaProducer<String, String> producer = Checks.producer("transactional.id", topic, "batch.size", 400,
            "compression.type", codec)) {
            producer.initTransactions();
            for (int n = 0; n < 9; n++) {
                producer.beginTransaction();
                for (int i = 0; i < 60; i++) {
                    String value = "value " + n + "." + i;
                    producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "key", value));
                    all.get(i % PARTITIONS).add(value);
                    if (n % 3 != 2) {
                        committed.get(i % PARTITIONS).add(value);
                    }
                }
                if (n % 3 == 2) {
                    producer.flush(); // so that there is something to abort
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        Checks.equal(codec + ", read_committed", Checks.read(topic, PARTITIONS, "read_committed"), committed);
        Checks.equal(codec + ", read_uncommitted", Checks.read(topic, PARTITIONS, "read_uncommitted"), all);
    }

    /** An open transaction holds the end for read_committed back, and its commit moves it. */
    private void openTransaction() throws Exception {
        String topic = name + "-open";
        Checks.create(topic, 1);
        TopicPartition p = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = Checks.producer("transactional.id", topic);
            KafkaConsumer<String, String> committed = Checks.consumer("isolation.level", "read_committed");
            KafkaConsumer<String, String> uncommitted = Checks.consumer("isolation.level", "read_uncommitted")) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "k", "v")).get();
            Checks.equal("end, read_committed", committed.endOffsets(List.of(p)).get(p), 0L);
            Checks.equal("end, read_uncommitted", uncommitted.endOffsets(List.of(p)).get(p), 1L);
            Checks.equal("seen before the commit", Checks.read(topic, 1, "read_uncommitted").get(0), List.of("v"));
            Checks.equal("seen before the commit", Checks.read(topic, 1, "read_committed").get(0), List.of());
            producer.commitTransaction();
            Checks.equal("end after the commit", committed.endOffsets(List.of(p)).get(p), 2L);
            Checks.equal("seen after the commit", Checks.read(topic, 1, "read_committed").get(0), List.of("v"));
        }
    }

    /** A second producer of the same transactional id aborts what the first had open, and shuts it out. */
    private void fencedBySuccessor() throws Exception {
        String topic = name + "-fenced";
        Checks.create(topic, 1);
        try (KafkaProducer<String, String> first = Checks.producer("transactional.id", topic);
            KafkaProducer<String, String> second = Checks.producer("transactional.id", topic)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, "k", "of the zombie")).get();
            second.initTransactions();
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, "k", "of the successor")).get();
            Checks.fails("the zombie's commit", () -> {
                first.commitTransaction();
                return null;
            }, ProducerFencedException.class, InvalidProducerEpochException.class);
            second.commitTransaction();
        }
        Checks.equal("after fencing", Checks.read(topic, 1, "read_committed").get(0), List.of("of the successor"));
    }

    private void fencedByAdmin() throws Exception {
        String topic = name + "-fence-producers";
        Checks.create(topic, 1);
        try (KafkaProducer<String, String> producer = Checks.producer("transactional.id", topic);
            Admin admin = Admin.create(Checks.properties())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "k", "v")).get();
            admin.fenceProducers(List.of(topic)).all().get();
            Checks.fails("a send after fenceProducers", () -> producer.send(new ProducerRecord<>(topic, "k", "w")).get(),
                ProducerFencedException.class, InvalidProducerEpochException.class);
        }
        Checks.equal("after fenceProducers", Checks.read(topic, 1, "read_committed").get(0), List.of());
    }

    /** A transaction that is not ended in time is aborted by the broker, and the producer learns it. */
    private void timeout() throws Exception {
        String topic = name + "-timeout";
        Checks.create(topic, 1);
        try (KafkaProducer<String, String> producer = Checks.producer("transactional.id", topic,
            "transaction.timeout.ms", 300); Admin admin = Admin.create(Checks.properties())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "k", "too late")).get();
            Checks.until("the transaction times out", () -> admin.describeTransactions(List.of(topic)).description(topic)
                .get().state() == TransactionState.COMPLETE_ABORT);
            Checks.fails("the late commit", () -> {
                producer.commitTransaction();
                return null;
            }, ProducerFencedException.class, InvalidProducerEpochException.class, InvalidTxnStateException.class);
        }
        Checks.equal("after the timeout", Checks.read(topic, 1, "read_committed").get(0), List.of());
    }
}

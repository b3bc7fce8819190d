import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Consumer groups of one kind. Arguments: bootstrap server, prefix of names, "classic", "cooperative" (classic, with that
 * assignor) or "consumer" (KIP-848).
 */
public final class Groups {
    private static final int PARTITIONS = 6;
    private static final int RECORDS = 600;

    private final String name;
    private final String kind;

    private Groups(String name, String kind) {
        this.name = name;
        this.kind = kind;
    }

    public static void main(String[] args) throws Exception {
        Checks.bootstrap = args[0];
        Groups g = new Groups(args[1], args[2]);
        g.fill();
        Checks.together(g::share, g::staticMember, g::pattern, g::offsets, g::offsetsInTransactions);
        System.out.println("ok");
    }

    private KafkaConsumer<String, String> member(String group, Object... pairs) {
        Properties p = Checks.properties(pairs);
        p.putAll(Checks.properties("group.id", name + "-" + group, "auto.offset.reset", "earliest", "enable.auto.commit", false,
            "isolation.level", "read_committed", "group.protocol", kind.equals("consumer") ? "consumer" : "classic"));
        if (kind.equals("cooperative")) {
            p.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
    }

    private void fill() throws Exception {
        Checks.create(name, PARTITIONS);
        try (KafkaProducer<String, String> producer = Checks.producer("transactional.id", name)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int i = 0; i < RECORDS; i++) {
                producer.send(new ProducerRecord<>(name, i % PARTITIONS, 1_000L + i, "k", String.valueOf(i)));
            }
            producer.commitTransaction();
        }
    }

    /** Polls two members in turn until each has so many partitions. */
    private void balance(String what, KafkaConsumer<String, String> a, int ofA, KafkaConsumer<String, String> b, int ofB) {
        Checks.until(what, () -> {
            a.poll(Duration.ofMillis(20));
            b.poll(Duration.ofMillis(20));
            return a.assignment().size() == ofA && b.assignment().size() == ofB;
        });
        Set<TopicPartition> both = new HashSet<>(a.assignment());
        both.addAll(b.assignment());
        Checks.equal(what + ": the partitions of both", both.size(), ofA + ofB);
    }

    /** Two members share the partitions; when one leaves, the other has all, and reads on where the first had committed. */
    private void share() {
        Map<String, Integer> seen = new HashMap<>();
        try (KafkaConsumer<String, String> a = member("share", "max.poll.records", 50)) {
            a.subscribe(List.of(name));
            try (KafkaConsumer<String, String> b = member("share", "max.poll.records", 50)) {
                b.subscribe(List.of(name));
                Checks.until("two members share " + PARTITIONS + " partitions", () -> {
                    for (KafkaConsumer<String, String> c : List.of(a, b)) {
                        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                        for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(20))) {
                            seen.merge(r.value(), 1, Integer::sum);
                            next.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                        }
                        try {
                            c.commitSync(next);
                        } catch (CommitFailedException e) { // the group has moved on: what was read is read again
                            return false;
                        }
                    }
                    return a.assignment().size() == PARTITIONS / 2 && b.assignment().size() == PARTITIONS / 2;
                });
            }
            Checks.within("the one that stays gets all", a, r -> seen.merge(r.value(), 1, Integer::sum),
                () -> a.assignment().size() == PARTITIONS);
            Checks.within("all is read", a, r -> seen.merge(r.value(), 1, Integer::sum), () -> seen.size() == RECORDS);
        }
    }

    /** A static member that is started again gets what it had, and the others notice nothing. */
    private void staticMember() {
        int[] rebalances = new int[1];
        try (KafkaConsumer<String, String> other = member("static", "group.instance.id", "other")) {
            other.subscribe(List.of(name), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    rebalances[0]++;
                }
            });
            Set<TopicPartition> had;
            int before;
            try (KafkaConsumer<String, String> c = member("static", "group.instance.id", "restarted")) {
                c.subscribe(List.of(name));
                balance("two static members", c, PARTITIONS / 2, other, PARTITIONS / 2);
                had = new HashSet<>(c.assignment());
                before = rebalances[0];
            }
            try (KafkaConsumer<String, String> c = member("static", "group.instance.id", "restarted")) {
                c.subscribe(List.of(name));
                balance("a static member again", c, PARTITIONS / 2, other, PARTITIONS / 2);
                Checks.equal("its partitions", c.assignment(), had);
                Checks.equal("rebalances that the other saw", rebalances[0], before);
            }
        }
    }

    private void pattern() throws Exception {
        Checks.create(name + "-x1", 1);
        try (KafkaConsumer<String, String> c = member("pattern", "metadata.max.age.ms", 200)) {
            if (kind.equals("consumer")) {
                c.subscribe(new SubscriptionPattern(name + "-x.*"));
            } else {
                c.subscribe(Pattern.compile(name + "-x.*"));
            }
            Checks.within("the pattern finds a topic", c, r -> { }, () -> c.assignment().size() == 1);
            Checks.create(name + "-x2", 2);
            Checks.within("the pattern finds a later topic", c, r -> { }, () -> c.assignment().size() == 3);
        }
    }

    private void offsets() throws Exception {
        TopicPartition p = new TopicPartition(name, 1);
        try (KafkaConsumer<String, String> c = member("offsets"); Admin admin = Admin.create(Checks.properties())) {
            c.subscribe(List.of(name));
            Checks.within("an assignment", c, r -> { }, () -> c.assignment().size() == PARTITIONS);
            Checks.equal("state", admin.describeConsumerGroups(List.of(name + "-offsets")).all().get()
                .get(name + "-offsets").groupState(), GroupState.STABLE);
            c.commitSync(Map.of(p, new OffsetAndMetadata(40, "metadata")));
            Checks.equal("committed", c.committed(Set.of(p)).get(p), new OffsetAndMetadata(40, "metadata"));
            c.seek(p, 90);
            List<String> after = new ArrayList<>();
            Checks.within("ten from 90", c, r -> {
                if (r.partition() == 1 && r.offset() >= 90) {
                    after.add(r.value());
                }
            }, () -> after.size() >= 10);
            Checks.equal("the first from 90", after.get(0), String.valueOf(90 * PARTITIONS + 1));
            // Record i, of partition i%6, is of time 1,000+i.
            OffsetAndTimestamp found = c.offsetsForTimes(Map.of(p, 1_000L + 7 * PARTITIONS)).get(p);
            Checks.equal("offset of a time", found.offset(), 7L);
            Checks.equal("time at it", found.timestamp(), 1_000L + 7 * PARTITIONS + 1);
            Checks.equal("beginning", c.beginningOffsets(List.of(p)).get(p), 0L);
            Checks.equal("end", c.endOffsets(List.of(p)).get(p), (long) RECORDS / PARTITIONS + 1); // and the marker
            Checks.equal("lag", c.currentLag(p).isPresent(), true);
        }
    }

    /** Offsets count with the transaction's commit, not with its abort, and not from a member that is gone. */
    private void offsetsInTransactions() throws Exception {
        String out = name + "-out";
        Checks.create(out, 1);
        TopicPartition p = new TopicPartition(name, 0);
        try (KafkaProducer<String, String> producer = Checks.producer("transactional.id", out)) {
            producer.initTransactions();
            ConsumerGroupMetadata gone;
            try (KafkaConsumer<String, String> c = member("txn")) {
                c.subscribe(List.of(name));
                Checks.within("an assignment", c, r -> { }, () -> c.assignment().size() == PARTITIONS);
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(out, "k", "committed"));
                producer.sendOffsetsToTransaction(Map.of(p, new OffsetAndMetadata(10)), c.groupMetadata());
                producer.commitTransaction();
                Checks.equal("after the commit", c.committed(Set.of(p)).get(p), new OffsetAndMetadata(10));
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(out, "k", "aborted"));
                producer.sendOffsetsToTransaction(Map.of(p, new OffsetAndMetadata(20)), c.groupMetadata());
                producer.abortTransaction();
                Checks.equal("after the abort", c.committed(Set.of(p)).get(p), new OffsetAndMetadata(10));
                gone = c.groupMetadata();
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(out, "k", "of a zombie"));
            Checks.fails("offsets of a member that has left", () -> {
                producer.sendOffsetsToTransaction(Map.of(p, new OffsetAndMetadata(30)), gone);
                return null;
            }, CommitFailedException.class);
            producer.abortTransaction();
        }
        Checks.equal("the output", Checks.read(out, 1, "read_committed").get(0), List.of("committed"));
    }
}

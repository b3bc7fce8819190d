import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What the programs of this folder share: clients of strings, and checks that name what they wanted. */
final class Checks {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    static String bootstrap;

    private Checks() {
    }

    static Properties properties(Object... pairs) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) {
            p.put(pairs[i], pairs[i + 1].toString());
        }
        return p;
    }

    static KafkaProducer<String, String> producer(Object... pairs) {
        return new KafkaProducer<>(properties(pairs), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Object... pairs) {
        Properties p = properties("auto.offset.reset", "earliest", "enable.auto.commit", false);
        p.putAll(properties(pairs));
        return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
    }

    static void create(String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(properties())) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
    }

    static List<TopicPartition> partitions(String topic, int count) {
        List<TopicPartition> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            all.add(new TopicPartition(topic, i));
        }
        return all;
    }

    /** Reads a topic up to where it ends for an isolation level: the values of each partition. */
    static Map<Integer, List<String>> read(String topic, int count, String isolation) {
        try (KafkaConsumer<String, String> c = consumer("isolation.level", isolation)) {
            List<TopicPartition> all = partitions(topic, count);
            c.assign(all);
            c.seekToBeginning(all);
            Map<TopicPartition, Long> ends = c.endOffsets(all);
            Map<Integer, List<String>> values = new HashMap<>();
            all.forEach(p -> values.put(p.partition(), new ArrayList<>()));
            within("read " + topic + " to its end", c, r -> values.get(r.partition()).add(r.value()),
                () -> all.stream().allMatch(p -> c.position(p) >= ends.get(p)));
            return values;
        }
    }

    interface Trial {
        void run() throws Exception;
    }

    /** Runs trials side by side, since they wait most of the time. */
    static void together(Trial... trials) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(trials.length);
        try {
            List<Future<?>> all = new ArrayList<>();
            for (Trial t : trials) {
                all.add(threads.submit(() -> {
                    t.run();
                    return null;
                }));
            }
            for (Future<?> f : all) {
                f.get();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    interface Take {
        void take(ConsumerRecord<String, String> record);
    }

    /** Polls until something is so. */
    static void within(String what, Consumer<String, String> c, Take take, BooleanSupplier done) {
        until(what, () -> {
            c.poll(Duration.ofMillis(50)).forEach(take::take);
            return done.getAsBoolean();
        });
    }

    /** Tries until something is so; the attempt itself is what waits. */
    static void until(String what, Callable<Boolean> attempt) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try {
            while (!attempt.call()) {
                if (System.nanoTime() > deadline) {
                    throw new AssertionError("not within " + PATIENCE + ": " + what);
                }
            }
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Exception e) {
            throw new AssertionError(what, e);
        }
    }

    static void equal(String what, Object got, Object want) {
        if (!got.equals(want)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }

    static void that(String what, boolean so) {
        if (!so) {
            throw new AssertionError(what);
        }
    }

    /** Something must fail with an error of one of these classes. */
    static void fails(String what, Callable<?> f, Class<?>... classes) {
        Throwable got;
        try {
            f.call();
            throw new AssertionError(what + " went well");
        } catch (Exception e) {
            got = e instanceof java.util.concurrent.ExecutionException ? e.getCause() : e;
        }
        for (Class<?> c : classes) {
            if (c.isInstance(got)) {
                return;
            }
        }
        throw new AssertionError(what + " failed with something else", got);
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of one group in one process, driven by lines of the standard input: "start NAME PROTOCOL [INSTANCE]", "stop NAME". Each
 * commits what it has read before it reads on. It ends with its input. Arguments: address, group, topic.
 */
public class Members {
    static final Map<String, KafkaConsumer<byte[], byte[]>> running = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String name = words[1];
            if (words[0].equals("stop")) {
                running.remove(name).wakeup();
                continue;
            }
            Properties p = new Properties();
            p.put("bootstrap.servers", args[0]);
            p.put("group.id", args[1]);
            p.put("group.protocol", words[2]);
            p.put("client.id", name);
            p.put("auto.offset.reset", "earliest");
            p.put("enable.auto.commit", "false");
            if (words[2].equals("classic")) {
                p.put("heartbeat.interval.ms", "200");
            }
            if (words.length > 3) {
                p.put("group.instance.id", words[3]);
            }
            KafkaConsumer<byte[], byte[]> c = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            running.put(name, c);
            Thread t = new Thread(() -> read(name, c, args[2]));
            t.start();
            threads.add(t);
        }
        for (KafkaConsumer<byte[], byte[]> c : running.values()) {
            c.wakeup();
        }
        for (Thread t : threads) {
            t.join();
        }
    }

    static void say(String format, Object... args) {
        synchronized (System.out) {
            System.out.println(String.format(format, args));
        }
    }

    static void read(String name, KafkaConsumer<byte[], byte[]> c, String topic) {
        try {
            c.subscribe(List.of(topic));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = c.poll(Duration.ofMillis(100));
                for (TopicPartition tp : records.partitions()) {
                    List<ConsumerRecord<byte[], byte[]>> list = records.records(tp);
                    say("read %s %d %d %d", name, tp.partition(), list.get(0).offset(), list.get(list.size() - 1).offset());
                }
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    c.commitSync();
                } catch (WakeupException e) {
                    c.commitSync();
                    throw e;
                } catch (RuntimeException e) {
                    for (TopicPartition tp : records.partitions()) {
                        List<ConsumerRecord<byte[], byte[]>> list = records.records(tp);
                        say("uncommitted %s %d %d %d", name, tp.partition(), list.get(0).offset(), list.get(list.size() - 1).offset());
                    }
                    say("refused %s %s", name, e);
                }
            }
        } catch (WakeupException e) {
            c.close();
            say("stopped %s", name);
        } catch (RuntimeException e) {
            say("failed %s %s", name, e);
        }
    }
}

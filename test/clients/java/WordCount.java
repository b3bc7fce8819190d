import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words exactly once, until it is ended. Every word gives one record of the output: its count so far. Arguments:
 * bootstrap server, application id, folder of its state, input topic, output topic.
 */
public final class WordCount {
    public static void main(String[] args) {
        Checks.bootstrap = args[0];
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[3], Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(String::valueOf)
            .to(args[4], Produced.with(Serdes.String(), Serdes.String()));
        Properties p = Checks.properties(
            StreamsConfig.APPLICATION_ID_CONFIG, args[1],
            StreamsConfig.STATE_DIR_CONFIG, args[2],
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100,
            StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0, // so that no count is left out
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2,
            StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 500, // DeleteRecords, all the time
            // Who is killed must not be waited for as long as by default.
            StreamsConfig.producerPrefix("transaction.timeout.ms"), 5_000,
            StreamsConfig.consumerPrefix("session.timeout.ms"), 6_000,
            StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        KafkaStreams streams = new KafkaStreams(builder.build(), p);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setUncaughtExceptionHandler(e -> {
            System.out.println("a new thread after " + e);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}

// A word count of Kafka Streams: lines → words by key (repartitioned) → counts in a store with a changelog.
// Each line also goes to a topic as it is, so that a reader sees which lines were taken how often.
// WordCount BOOTSTRAP APPLICATION STATE_FOLDER MICROSECONDS_A_LINE [KEY=VALUE]…; ends cleanly when stdin does.

import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

public class WordCount {
    public static void main(String[] args) throws Exception {
        String application = args[1];
        long pauseNs = 1000 * Long.parseLong(args[3]);
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", application);
        config.put("state.dir", args[2]);
        config.put("default.key.serde", Serdes.StringSerde.class.getName());
        config.put("default.value.serde", Serdes.StringSerde.class.getName());
        config.put("statestore.cache.max.bytes", 0);  // each count goes out, not the latest of an interval
        config.put("producer.linger.ms", 0);  // a transaction's records are there before its end
        config.put("auto.offset.reset", "earliest");
        for (String setting : Arrays.asList(args).subList(4, args.length)) {
            String[] parts = setting.split("=", 2);
            config.put(parts[0], parts[1]);
        }

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(application + "-lines");
        lines.peek((key, line) -> LockSupport.parkNanos(pauseNs)).to(application + "-seen");
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(application + "-counts");

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        CountDownLatch failed = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            failed.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            System.out.flush();
        });
        streams.start();
        Thread ending = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException error) {
                // as if it had ended
            }
            boolean closed = streams.close(Duration.ofSeconds(30));
            Runtime.getRuntime().halt(closed ? 0 : 2);
        });
        ending.setDaemon(true);
        ending.start();
        failed.await();
        Runtime.getRuntime().halt(1);
    }
}

// Kafka's own clients in a consume–transform–produce loop until stdin ends; compat_tests/transaction_soak/workers.py
// says what the words on stdout mean.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class CopyLoop {
    private static volatile boolean stopping;
    private final String id;
    private final String incarnation;
    private final String target;
    private final int partitions;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private int number;
    private boolean open;

    private CopyLoop(String[] args) {
        id = args[1];
        incarnation = args[2];
        target = args[6];
        partitions = Integer.parseInt(args[7]);
        producer = new KafkaProducer<>(producing(args), new ByteArraySerializer(), new ByteArraySerializer());
        consumer = new KafkaConsumer<>(consuming(args), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        producer.initTransactions();
        consumer.subscribe(List.of(args[5]));
    }

    private static Map<String, Object> common(String[] args) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        config.put("reconnect.backoff.ms", 20);
        config.put("reconnect.backoff.max.ms", 200);
        config.put("retry.backoff.ms", 50);
        config.put("request.timeout.ms", 5_000);
        return config;
    }

    private static Map<String, Object> producing(String[] args) {
        Map<String, Object> config = common(args);
        config.put("transactional.id", args[1]);
        config.put("transaction.timeout.ms", 60_000);
        config.put("max.block.ms", 60_000);
        config.put("linger.ms", 5);
        return config;
    }

    private static Map<String, Object> consuming(String[] args) {
        Map<String, Object> config = common(args);
        config.put("group.id", args[3]);
        if (!args[4].equals("-")) {
            config.put("group.instance.id", args[4]);
        }
        config.put("isolation.level", "read_committed");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("max.poll.records", 40);
        config.put("session.timeout.ms", 4_000);
        config.put("heartbeat.interval.ms", 500);
        return config;
    }

    public static void main(String[] args) throws Exception {
        Thread waiting = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // Nothing is said to this process.
                }
            } catch (java.io.IOException gone) {
                // As good as the end.
            }
            stopping = true;
        });
        waiting.setDaemon(true);
        waiting.start();
        try {
            new CopyLoop(args).run();
            say("ended");
        } catch (Exception error) {
            boolean fenced = is(error, ProducerFencedException.class)
                || is(error, InvalidProducerEpochException.class) || is(error, FencedInstanceIdException.class);
            say((fenced ? "fenced " : "failed ") + told(error));
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static String told(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            text.append(text.length() > 0 ? " < " : "").append(each.toString().replace('\n', ' '));
        }
        return text.toString();
    }

    private static boolean is(Throwable error, Class<?> kind) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (kind.isInstance(each)) {
                return true;
            }
        }
        return false;
    }

    private void run() throws Exception {
        say("ready");
        while (!stopping) {
            try {
                copy();
            } catch (ProducerFencedException | FencedInstanceIdException error) {
                throw error;
            } catch (KafkaException error) {
                say("error " + told(error));
                if (open) {
                    abort();
                }
                rewind();
            }
        }
        consumer.close(Duration.ofSeconds(10));
        producer.close(Duration.ofSeconds(10));
    }

    private void copy() throws Exception {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
        if (records.isEmpty()) {
            return;
        }
        number++;
        producer.beginTransaction();
        open = true;
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            String value = record.partition() + " " + record.offset() + " " + id + " " + incarnation + " " + number
                + " " + records.count();
            int partition = (int) (record.offset() % partitions);
            producer.send(new ProducerRecord<>(target, partition, null, value.getBytes()));
            next.put(new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        producer.flush();
        say("middle " + number);
        Thread.sleep(20);
        if (number % 5 == 0) {
            abort();
            rewind();
            return;
        }
        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
        while (true) {
            try {
                producer.commitTransaction();
                break;
            } catch (TimeoutException error) {
                say("error " + told(error));
            }
        }
        open = false;
        say("committed " + number);
    }

    private void abort() {
        while (true) {
            try {
                producer.abortTransaction();
                break;
            } catch (TimeoutException error) {
                say("error " + told(error));
            }
        }
        open = false;
        say("aborted " + number);
    }

    /** Back to the committed offsets, which are as far as the outputs. */
    private void rewind() {
        while (!stopping) {
            try {
                consumer.committed(consumer.assignment()).forEach((partition, committed) ->
                    consumer.seek(partition, committed == null ? 0 : committed.offset()));
                return;
            } catch (RetriableException error) {
                say("error " + told(error));
            }
        }
    }
}

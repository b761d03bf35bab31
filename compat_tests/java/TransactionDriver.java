// Kafka's own clients under the words txn_* of the line protocol of compat_tests/clients.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class TransactionDriver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final String bootstrap;
    private KafkaProducer<byte[], byte[]> producer;
    private boolean open;

    private TransactionDriver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        TransactionDriver driver = new TransactionDriver(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", driver.handle(JSON.readTree(line)));
            } catch (ExecutionException error) {
                answer.put("error", String.valueOf(error.getCause()));
            } catch (Exception error) {
                error.printStackTrace();
                answer.put("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private JsonNode handle(JsonNode request) throws Exception {
        switch (request.get("do").asText()) {
            case "txn_init":
                init(request.get("id").asText(), request.get("timeout_ms").asInt());
                break;
            case "txn_send":
                send(request);
                break;
            case "txn_end":
                end(request.get("commit").asBoolean());
                break;
            case "txn_transform":
                return transform(request);
            default:
                throw new IllegalArgumentException("unknown word");
        }
        return null;
    }

    private void init(String id, int timeoutMs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        config.put("transaction.timeout.ms", timeoutMs);
        config.put("max.block.ms", 30_000);
        producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
    }

    private void begin() {
        if (!open) {
            producer.beginTransaction();
            open = true;
        }
    }

    private void send(JsonNode request) throws Exception {
        begin();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : request.get("values")) {
            byte[] data = Base64.getDecoder().decode(value.asText());
            sent.add(producer.send(new ProducerRecord<>(
                request.get("topic").asText(), request.get("partition").asInt(), null, data)));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private void end(boolean commit) {
        open = false;
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private JsonNode transform(JsonNode request) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", request.get("group").asText());
        config.put("isolation.level", "read_committed");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        // A member whose LeaveGroup has met a coordinator that moves is waited for no longer than that.
        config.put("session.timeout.ms", 6_000);
        config.put("heartbeat.interval.ms", 1_000);
        config.put("max.poll.records", request.get("count").asInt());
        ArrayNode read = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(request.get("source").asText()));
            begin();
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            while (read.size() < request.get("count").asInt()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    read.add(Base64.getEncoder().encodeToString(record.value()));
                    byte[] changed = (new String(record.value()) + "!").getBytes();
                    producer.send(new ProducerRecord<>(request.get("target").asText(), 0, null, changed));
                    next.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                }
            }
            producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
            end(request.get("commit").asBoolean());
        }
        return read;
    }
}

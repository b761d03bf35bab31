// Kafka's own clients at a listener that asks for TLS and log-ins: the words of compat_tests/locks/__init__.py.
// Compiled once, with the oldest release; run with the jars of each.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Attempts {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode said = JSON.createObjectNode();
            try {
                attempt(JSON.readTree(line));
                said.put("kind", "in").put("text", "");
            } catch (Throwable error) {
                Throwable reason = error instanceof ExecutionException ? error.getCause() : error;
                while (reason.getClass() == KafkaException.class && reason.getCause() != null) {
                    reason = reason.getCause();
                }
                said.put("kind", reason.getClass().getSimpleName()).put("text", String.valueOf(reason.getMessage()));
            }
            ObjectNode answer = JSON.createObjectNode();
            answer.set("ok", said);
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** The properties of the attempt, as of a file for --command-config. */
    private static Map<String, Object> properties(JsonNode request) {
        Map<String, Object> found = new HashMap<>();
        request.get("properties").fields().forEachRemaining(e -> found.put(e.getKey(), e.getValue().asText()));
        found.put("bootstrap.servers", request.get("servers").asText());
        found.put("default.api.timeout.ms", "30000");
        found.put("request.timeout.ms", "20000");
        return found;
    }

    private static void attempt(JsonNode request) throws Exception {
        Map<String, Object> config = properties(request);
        try (Admin admin = Admin.create(config)) {
            admin.describeCluster().nodes().get();
        }
        String topic = request.get("topic").asText();
        String value = request.get("value").asText();
        Map<String, Object> written = new HashMap<>(config);
        written.remove("default.api.timeout.ms");
        RecordMetadata at;
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(written, new StringSerializer(), new StringSerializer())) {
            at = producer.send(new ProducerRecord<>(topic, value)).get();
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, at.partition());
            consumer.assign(Collections.singleton(partition));
            consumer.seek(partition, at.offset());
            for (int polls = 0; polls < 80; polls++) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    if (!record.value().equals(value)) {
                        throw new IllegalStateException("read " + record.value());
                    }
                    return;
                }
            }
            throw new IllegalStateException("nothing read");
        }
    }
}

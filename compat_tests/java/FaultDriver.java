// Kafka's own clients while faults are set: the words of compat_tests/fault_clients/__init__.py.

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
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class FaultDriver {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode said = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                if (request.get("act").asText().equals("send")) {
                    send(request);
                } else {
                    read(request);
                }
                said.put("kind", "ok").put("text", "");
            } catch (Throwable error) {
                Throwable reason = error instanceof ExecutionException ? error.getCause() : error;
                said.put("kind", reason.getClass().getSimpleName()).put("text", String.valueOf(reason.getMessage()));
            }
            ObjectNode answer = JSON.createObjectNode();
            answer.set("ok", said);
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> config(JsonNode request) {
        Map<String, Object> found = new HashMap<>();
        found.put("bootstrap.servers", request.get("servers").asText());
        found.put("request.timeout.ms", "1500");
        found.put("retry.backoff.ms", "20");
        found.put("retry.backoff.max.ms", "50");
        return found;
    }

    private static void send(JsonNode request) throws Exception {
        Map<String, Object> config = config(request);
        config.put("enable.idempotence", request.get("idempotent").asBoolean());
        config.put("acks", "all");
        config.put("delivery.timeout.ms", "25000");
        config.put("linger.ms", "0");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            String topic = request.get("topic").asText();
            Integer partition = request.get("partition").asInt();
            for (int i = 0; i < request.get("count").asInt(); i++) {
                producer.send(new ProducerRecord<>(topic, partition, null, request.get("value").asText())).get();
            }
        }
    }

    private static void read(JsonNode request) throws Exception {
        Map<String, Object> config = config(request);
        config.put("auto.offset.reset", "earliest");
        config.put("fetch.max.wait.ms", "200");
        config.put("request.timeout.ms", "5000");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition =
                new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
            consumer.assign(Collections.singleton(partition));
            consumer.seekToBeginning(Collections.singleton(partition));
            for (long deadline = System.nanoTime() + 25_000_000_000L; System.nanoTime() < deadline; ) {
                if (!consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                    return;
                }
            }
            throw new IllegalStateException("nothing read");
        }
    }
}

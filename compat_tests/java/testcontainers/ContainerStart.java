// Starts one of Testcontainers' Kafka classes as it is published, writes and reads through it.
// java -cp 'jars/*' ContainerStart.java CLASS IMAGE [CLASS IMAGE]...
// Prints a line for each: "CLASS ready_ms=… read=…".
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.DockerClientFactory;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.utility.DockerImageName;

public class ContainerStart {
    private static final int RECORDS = 10;

    private static GenericContainer<?> container(String kind, String image) {
        DockerImageName name = DockerImageName.parse(image);
        switch (kind) {
            case "KafkaContainer":
                return new org.testcontainers.kafka.KafkaContainer(name);
            case "KafkaContainer+listener":
                return new org.testcontainers.kafka.KafkaContainer(name).withListener("localhost:19092");
            case "ConfluentKafkaContainer":
                return new org.testcontainers.kafka.ConfluentKafkaContainer(name);
            case "OldKafkaContainer":
                return new org.testcontainers.containers.KafkaContainer(name);
            case "OldKafkaContainer+kraft":
                return new org.testcontainers.containers.KafkaContainer(name).withKraft();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static String bootstrap(GenericContainer<?> container) throws Exception {
        return (String) container.getClass().getMethod("getBootstrapServers").invoke(container);
    }

    private static int writeAndRead(String servers) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("group.id", "readers");
        settings.put("auto.offset.reset", "earliest");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>("words", "key", "value-" + number));
            }
            producer.flush();
        }
        List<String> read = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singletonList("words"));
            long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (read.size() < RECORDS && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    read.add(record.value());
                }
            }
            consumer.commitSync();
        }
        return read.size();
    }

    public static void main(String[] arguments) throws Exception {
        DockerClientFactory.instance().client(); // finding the engine takes seconds and is not the container's start
        for (int place = 0; place + 1 < arguments.length; place += 2) {
            try (GenericContainer<?> container = container(arguments[place], arguments[place + 1])) {
                long start = System.nanoTime();
                try {
                    container.start();
                } catch (RuntimeException error) {
                    System.out.println(container.getLogs());
                    throw error;
                }
                long readyMs = (System.nanoTime() - start) / 1_000_000;
                int read = writeAndRead(bootstrap(container));
                System.out.println(arguments[place] + " ready_ms=" + readyMs + " read=" + read);
            }
        }
    }
}

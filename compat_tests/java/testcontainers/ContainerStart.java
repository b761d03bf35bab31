// Starts one of Testcontainers' Kafka classes as it is published, writes and reads through it.
// java -cp 'jars/*' ContainerStart.java CLASS IMAGE [CLASS IMAGE]...
// Prints a line for each: "CLASS ready_ms=… read=…".
import com.github.dockerjava.api.command.InspectContainerResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.DockerClientFactory;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

public class ContainerStart {
    private static final int RECORDS = 10;

    private static final String PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required ";
    private static final String SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required ";
    private static final String ADMIN = "username=\"admin\" password=\"admin-secret\"";
    private static final String SECRETS = "/etc/kafka/secrets/";

    /** What people set, by environment variables, for listeners that ask for a log-in. */
    private static GenericContainer<?> locked(GenericContainer<?> container, String lock) {
        boolean isPlain = lock.equals("sasl"), isTls = lock.equals("tls");
        String protocol = isTls ? "SASL_SSL" : "SASL_PLAINTEXT", mechanism = isPlain || isTls ? "PLAIN" : "SCRAM-SHA-256";
        container
            .withEnv("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
                "PLAINTEXT:" + protocol + ",BROKER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT")
            .withEnv("KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL", mechanism)
            .withEnv("KAFKA_LISTENER_NAME_PLAINTEXT_SASL_ENABLED_MECHANISMS", mechanism)
            .withEnv("KAFKA_LISTENER_NAME_BROKER_SASL_ENABLED_MECHANISMS", mechanism);
        if (isTls) {
            container
                .withEnv("KAFKA_SSL_KEYSTORE_FILENAME", "broker.p12")
                .withEnv("KAFKA_SSL_KEYSTORE_TYPE", "PKCS12")
                .withEnv("KAFKA_SSL_KEYSTORE_CREDENTIALS", "word")
                .withEnv("KAFKA_SSL_KEY_CREDENTIALS", "word")
                .withCopyToContainer(Transferable.of(file("broker.p12"), 0644), SECRETS + "broker.p12")
                .withCopyToContainer(Transferable.of("hush-hush\n", 0644), SECRETS + "word");
        }
        if (isPlain || isTls) {
            String line = PLAIN + ADMIN + " user_admin=\"admin-secret\" user_alice=\"alice-secret\";";
            return container
                .withEnv("KAFKA_LISTENER_NAME_BROKER_PLAIN_SASL_JAAS_CONFIG", line)
                .withEnv("KAFKA_LISTENER_NAME_PLAINTEXT_PLAIN_SASL_JAAS_CONFIG", line);
        }
        String file = "KafkaServer {\n  " + SCRAM + ADMIN + ";\n};\n";
        return container
            .withEnv("KAFKA_SASL_ENABLED_MECHANISMS", mechanism)
            .withEnv("KAFKA_OPTS", "-Djava.security.auth.login.config=" + SECRETS + "kafka_server_jaas.conf")
            .withCopyToContainer(Transferable.of(file, 0644), SECRETS + "kafka_server_jaas.conf");
    }

    private static byte[] file(String name) {
        try {
            return java.nio.file.Files.readAllBytes(java.nio.file.Path.of(System.getenv("STORES"), name));
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    /** What a client needs beside the address. */
    private static Map<String, String> login(String lock) {
        switch (lock) {
            case "":
                return Map.of();
            case "scram":
                return Map.of("security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "SCRAM-SHA-256",
                    "sasl.jaas.config", SCRAM + ADMIN + ";");
            default:
                return Map.of(
                    "security.protocol", lock.equals("tls") ? "SASL_SSL" : "SASL_PLAINTEXT",
                    "sasl.mechanism", "PLAIN",
                    "sasl.jaas.config", PLAIN + "username=\"alice\" password=\"alice-secret\";",
                    "ssl.truststore.type", "PEM",
                    "ssl.truststore.location", System.getenv("STORES") + "/ca.pem");
        }
    }

    private static GenericContainer<?> container(String kind, String image) {
        DockerImageName name = DockerImageName.parse(image);
        switch (kind) {
            case "KafkaContainer":
                return new org.testcontainers.kafka.KafkaContainer(name);
            case "KafkaContainer+listener":
                return new org.testcontainers.kafka.KafkaContainer(name).withListener("localhost:19092");
            case "ConfluentKafkaContainer":
                return new org.testcontainers.kafka.ConfluentKafkaContainer(name);
            case "Formatted": // with users of SCRAM, in the way that Kafka has for it
                return new org.testcontainers.kafka.ConfluentKafkaContainer(name) {
                    @Override
                    protected void containerIsStarting(InspectContainerResponse started) {
                        try {
                            execInContainer("bash", "-c", "echo 'kafka-storage format --ignore-formatted -t \"$CLUSTER_ID\""
                                + " --add-scram SCRAM-SHA-256=[name=admin,password=admin-secret]"
                                + " -c /etc/kafka/kafka.properties' >> /etc/confluent/docker/configure");
                        } catch (Exception error) {
                            throw new IllegalStateException(error);
                        }
                        super.containerIsStarting(started);
                    }
                };
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

    private static int writeAndRead(String servers, String lock) throws Exception {
        Properties settings = new Properties();
        settings.putAll(login(lock));
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
            String[] kind = (arguments[place] + "/").split("/", 3); // "KafkaContainer/sasl": locked so
            try (GenericContainer<?> container = container(kind[0], arguments[place + 1])) {
                if (!kind[1].isEmpty()) {
                    locked(container, kind[1]);
                }
                long start = System.nanoTime();
                try {
                    container.start();
                } catch (RuntimeException error) {
                    System.out.println(container.getLogs());
                    throw error;
                }
                long readyMs = (System.nanoTime() - start) / 1_000_000;
                int read = writeAndRead(bootstrap(container), kind[1]);
                System.out.println(arguments[place] + " ready_ms=" + readyMs + " read=" + read);
            }
        }
    }
}

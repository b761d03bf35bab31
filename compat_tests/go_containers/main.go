// Starts Testcontainers' Kafka module for Go as it is published, with a listener that asks for a log-in, and for TLS if
// STORES is set; writes and reads by franz-go. Prints "ready_ms=… read=…".
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

const (
	records = 10
	secrets = "/etc/kafka/secrets/"
	line    = `org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret"` +
		` user_admin="admin-secret" user_alice="alice-secret";`
)

func file(name string) testcontainers.ContainerFile {
	return testcontainers.ContainerFile{HostFilePath: os.Getenv("STORES") + "/" + name, ContainerFilePath: secrets + name, FileMode: 0o644}
}

// options are what people set, by environment variables, and whom the client trusts.
func options() ([]testcontainers.ContainerCustomizer, *tls.Config) {
	protocol := "SASL_PLAINTEXT"
	variables := map[string]string{
		"KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL":           "PLAIN",
		"KAFKA_LISTENER_NAME_PLAINTEXT_SASL_ENABLED_MECHANISMS": "PLAIN",
		"KAFKA_LISTENER_NAME_PLAINTEXT_PLAIN_SASL_JAAS_CONFIG":  line,
		"KAFKA_LISTENER_NAME_BROKER_SASL_ENABLED_MECHANISMS":    "PLAIN",
		"KAFKA_LISTENER_NAME_BROKER_PLAIN_SASL_JAAS_CONFIG":     line,
	}
	var trusted *tls.Config
	var found []testcontainers.ContainerCustomizer
	if folder := os.Getenv("STORES"); folder != "" {
		protocol = "SASL_SSL"
		variables["KAFKA_SSL_KEYSTORE_TYPE"] = "PEM"
		variables["KAFKA_SSL_KEYSTORE_LOCATION"] = secrets + "broker.pem"
		found = append(found, testcontainers.WithFiles(file("broker.pem")))
		pool := x509.NewCertPool()
		text, err := os.ReadFile(folder + "/ca.pem")
		if err != nil || !pool.AppendCertsFromPEM(text) {
			log.Fatal("no certificates in ca.pem")
		}
		trusted = &tls.Config{RootCAs: pool}
	}
	variables["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] = "BROKER:SASL_PLAINTEXT,PLAINTEXT:" + protocol + ",CONTROLLER:PLAINTEXT"
	return append(found, testcontainers.WithEnv(variables)), trusted
}

func writeAndRead(ctx context.Context, brokers []string, trusted *tls.Config) (int, error) {
	settings := []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.SASL(plain.Auth{User: "alice", Pass: "alice-secret"}.AsMechanism()),
		kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic("words"),
		kgo.ConsumeTopics("words"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if trusted != nil {
		settings = append(settings, kgo.DialTLSConfig(trusted))
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	for range records {
		if err := client.ProduceSync(ctx, kgo.StringRecord("value")).FirstErr(); err != nil {
			return 0, err
		}
	}
	read := 0
	for read < records && ctx.Err() == nil {
		read += client.PollFetches(ctx).NumRecords()
	}
	return read, ctx.Err()
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	given, trusted := options()
	start := time.Now()
	container, err := kafka.Run(ctx, os.Args[1], given...)
	defer func() {
		if container != nil {
			_ = container.Terminate(context.Background())
		}
	}()
	if err != nil {
		log.Print(err)
		return
	}
	ready := time.Since(start).Milliseconds()
	brokers, err := container.Brokers(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	read, err := writeAndRead(ctx, brokers, trusted)
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Printf("ready_ms=%d read=%d\n", ready, read)
}

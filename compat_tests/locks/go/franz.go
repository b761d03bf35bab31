package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// kerrKind is the name of a code of Kafka's within an error, "" without one.
func kerrKind(err error) string {
	var found *kerr.Error
	if errors.As(err, &found) {
		return found.Message
	}
	for _, code := range []sarama.KError{sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism} {
		if errors.Is(err, code) {
			return kerr.ErrorForCode(int16(code)).(*kerr.Error).Message
		}
	}
	return ""
}

func franz(a *Attempt) error {
	options := []kgo.Opt{kgo.SeedBrokers(a.Servers), kgo.RequestRetries(0), kgo.RetryTimeout(patience)}
	if a.Ca != "" {
		config, err := a.tls()
		if err != nil {
			return err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	login := scram.Auth{User: a.User, Pass: a.Password, IsToken: a.Token}
	switch a.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: a.User, Pass: a.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(login.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(login.AsSha512Mechanism()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	made, err := client.ProduceSync(ctx, &kgo.Record{Topic: a.Topic, Value: []byte(a.Value)}).First()
	if err != nil {
		return err
	}
	at := map[string]map[int32]kgo.Offset{a.Topic: {made.Partition: kgo.NewOffset().At(made.Offset)}}
	reader, err := kgo.NewClient(append(options, kgo.ConsumePartitions(at))...)
	if err != nil {
		return err
	}
	defer reader.Close()
	read := reader.PollFetches(ctx)
	if err := read.Err(); err != nil {
		return err
	}
	if found := string(read.Records()[0].Value); found != a.Value {
		return fmt.Errorf("read %s", found)
	}
	return nil
}

package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// conversation is what sarama asks its users for: SCRAM by another library, as in sarama's own example.
type conversation struct {
	hash func() hash.Hash
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := scram.HashGeneratorFcn(c.hash).NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	c.ClientConversation = client.NewConversation()
	return nil
}

func sarama_(a *Attempt) error {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Metadata.Retry.Max = 0
	config.Producer.Retry.Max = 0
	config.Producer.Return.Successes = true
	config.Net.DialTimeout, config.Net.ReadTimeout = patience, patience
	config.Net.TLS.Enable = true
	var err error
	if config.Net.TLS.Config, err = a.tls(); err != nil {
		return err
	}
	if a.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(a.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = a.User, a.Password
		made := sha256.New
		if a.Mechanism == "SCRAM-SHA-512" {
			made = sha512.New
		}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: made} }
	}
	client, err := sarama.NewClient([]string{a.Servers}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	message := &sarama.ProducerMessage{Topic: a.Topic, Value: sarama.StringEncoder(a.Value)}
	partition, offset, err := producer.SendMessage(message)
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	reader, err := consumer.ConsumePartition(a.Topic, partition, offset)
	if err != nil {
		return err
	}
	defer reader.Close()
	select {
	case read := <-reader.Messages():
		if string(read.Value) != a.Value {
			return fmt.Errorf("read %s", read.Value)
		}
		return nil
	case err := <-reader.Errors():
		return err
	case <-time.After(patience):
		return fmt.Errorf("nothing read")
	}
}

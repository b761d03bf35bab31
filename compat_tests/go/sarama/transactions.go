package main

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"kwire/compat/wire"
)

// transactions keeps the producer of the words txn_*.
type transactions struct {
	producer sarama.SyncProducer
	isOpen   bool
}

func (d *driver) transact(r *wire.Request) (any, error) {
	t := &d.txn
	switch r.Do {
	case "txn_init":
		c := config()
		c.Producer.Idempotent = true
		c.Producer.Transaction.ID = r.Id
		c.Producer.Transaction.Timeout = time.Duration(r.TimeoutMs) * time.Millisecond
		c.Net.MaxOpenRequests = 1
		producer, err := sarama.NewSyncProducer(d.brokers, c)
		t.producer = producer
		return nil, err
	case "txn_send":
		if !t.isOpen {
			if err := t.producer.BeginTxn(); err != nil {
				return nil, err
			}
			t.isOpen = true
		}
		return nil, t.send(r.Topic, r.Partition, r.Values)
	case "txn_end":
		return nil, t.end(r.Commit)
	case "txn_transform":
		return d.transform(r)
	}
	return nil, fmt.Errorf("unknown word %s", r.Do)
}

func (t *transactions) send(topic string, partition int32, values [][]byte) error {
	var messages []*sarama.ProducerMessage
	for _, value := range values {
		message := &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.ByteEncoder(value)}
		messages = append(messages, message)
	}
	return t.producer.SendMessages(messages)
}

func (t *transactions) end(commit bool) error {
	t.isOpen = false
	if commit {
		return t.producer.CommitTxn()
	}
	return t.producer.AbortTxn()
}

// transform reads without joining the group: sarama's producer commits for a group by its name alone.
func (d *driver) transform(r *wire.Request) (any, error) {
	c := config()
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	client, err := sarama.NewClient(d.brokers, c)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	start, err := committed(client, r.Group, r.Source)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	partition, err := consumer.ConsumePartition(r.Source, 0, start)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	read, changed, next := [][]byte{}, [][]byte{}, int64(0)
	for len(read) < r.Count {
		message := <-partition.Messages()
		read, next = append(read, message.Value), message.Offset+1
		changed = append(changed, append(append([]byte{}, message.Value...), '!'))
	}
	if err := d.txn.producer.BeginTxn(); err != nil {
		return nil, err
	}
	if err := d.txn.send(r.Target, 0, changed); err != nil {
		return nil, err
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{r.Source: {{Partition: 0, Offset: next, LeaderEpoch: -1}}}
	if err := d.txn.producer.AddOffsetsToTxn(offsets, r.Group); err != nil {
		return nil, err
	}
	return read, d.txn.end(r.Commit)
}

func committed(client sarama.Client, group, topic string) (int64, error) {
	manager, err := sarama.NewOffsetManagerFromClient(group, client)
	if err != nil {
		return 0, err
	}
	defer manager.Close()
	partition, err := manager.ManagePartition(topic, 0)
	if err != nil {
		return 0, err
	}
	defer partition.AsyncClose() // Close waits for the manager's
	next, _ := partition.NextOffset()
	return next, nil
}

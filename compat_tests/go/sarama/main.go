// sarama under the line protocol of compat_tests/clients.py.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"kwire/compat/wire"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

type driver struct {
	brokers []string
	admin   sarama.ClusterAdmin
	group   sarama.ConsumerGroup
	stop    context.CancelFunc
	done    chan struct{}
	member  *member
	txn     transactions
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Flush.Frequency = 20 * time.Millisecond
	return c
}

func (d *driver) handle(r *wire.Request) (any, error) {
	switch r.Do {
	case "produce":
		return d.produce(r)
	case "fetch":
		return d.fetch(r)
	case "offset_for_time":
		client, err := sarama.NewClient(d.brokers, config())
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return client.GetOffset(r.Topic, r.Partition, r.Time)
	case "join":
		return nil, d.join(r)
	case "wait":
		return d.member.seen.Wait(wire.Number(r.Partitions), wire.Number(r.Records)), nil
	case "commit":
		d.member.session.Commit()
		return nil, nil
	case "leave":
		d.stop()
		<-d.done
		return nil, d.group.Close()
	}
	if strings.HasPrefix(r.Do, "txn_") {
		return d.transact(r)
	}
	if d.admin == nil {
		admin, err := sarama.NewClusterAdmin(d.brokers, config())
		if err != nil {
			return nil, err
		}
		d.admin = admin
	}
	return d.administer(r)
}

func (d *driver) administer(r *wire.Request) (any, error) {
	switch r.Do {
	case "create":
		detail := &sarama.TopicDetail{NumPartitions: int32(wire.Number(r.Partitions)), ReplicationFactor: 1, ConfigEntries: r.Config}
		return nil, d.admin.CreateTopic(r.Topic, detail, false)
	case "topics":
		topics, err := d.admin.ListTopics()
		names := []string{}
		for name := range topics {
			names = append(names, name)
		}
		return names, err
	case "describe":
		found, err := d.admin.DescribeTopics([]string{r.Topic})
		if err != nil {
			return nil, err
		}
		return len(found[0].Partitions), nil
	case "grow":
		return nil, d.admin.CreatePartitions(r.Topic, int32(r.Total), nil, false)
	case "set_config":
		entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &r.Value}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{r.Key: entry}
		return nil, d.admin.IncrementalAlterConfig(sarama.TopicResource, r.Topic, entries, false)
	case "get_config":
		found, err := d.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: r.Topic, ConfigNames: []string{r.Key}})
		if err != nil || len(found) != 1 {
			return nil, fmt.Errorf("%d entries: %w", len(found), err)
		}
		return found[0].Value, nil
	case "delete_records":
		return nil, d.admin.DeleteRecords(r.Topic, map[int32]int64{r.Partition: r.Before})
	case "delete":
		return nil, d.admin.DeleteTopic(r.Topic)
	}
	return nil, fmt.Errorf("unknown word")
}

func (d *driver) produce(r *wire.Request) (any, error) {
	c := config()
	c.Producer.Compression = codecs[r.Codec]
	producer, err := sarama.NewSyncProducer(d.brokers, c)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, in := range r.ToProduce() {
		message := &sarama.ProducerMessage{Topic: r.Topic, Partition: in.Partition}
		if in.Key != nil {
			message.Key = sarama.ByteEncoder(in.Key)
		}
		if in.Value != nil {
			message.Value = sarama.ByteEncoder(in.Value)
		}
		if in.Time > 0 {
			message.Timestamp = time.UnixMilli(in.Time)
		}
		for _, h := range in.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
		}
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, message := range messages {
		offsets = append(offsets, message.Offset)
	}
	return offsets, nil
}

func asWire(m *sarama.ConsumerMessage) wire.Record {
	headers := []wire.Header{}
	for _, h := range m.Headers {
		value := h.Value
		if value == nil {
			value = []byte{}
		}
		headers = append(headers, wire.Header{Name: string(h.Key), Value: value})
	}
	return wire.Record{Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp.UnixMilli(),
		Key: m.Key, Value: m.Value, Headers: headers}
}

func (d *driver) fetch(r *wire.Request) (any, error) {
	consumer, err := sarama.NewConsumer(d.brokers, config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	from, err := consumer.ConsumePartition(r.Topic, r.Partition, r.Offset)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	records := []wire.Record{}
	deadline := time.After(50 * time.Second)
	for len(records) < r.Count {
		select {
		case message := <-from.Messages():
			records = append(records, asWire(message))
		case <-deadline:
			return nil, fmt.Errorf("only %d records", len(records))
		}
	}
	return records, nil
}

// member is sarama's handler of a group session.
type member struct {
	seen    *wire.Seen
	topic   string
	session sarama.ConsumerGroupSession
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.session = session
	m.seen.Assign(session.Claims()[m.topic], true)
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	m.seen.Assign(session.Claims()[m.topic], false)
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.seen.Add(asWire(message))
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (d *driver) join(r *wire.Request) error {
	group, err := sarama.NewConsumerGroup(d.brokers, r.Group, config())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	d.group, d.stop, d.done = group, stop, make(chan struct{})
	d.member = &member{seen: wire.NewSeen(), topic: r.Topic}
	go func() {
		defer close(d.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{r.Topic}, d.member); err != nil {
				fmt.Fprintln(os.Stderr, "consume:", err)
			}
		}
	}()
	return nil
}

func main() {
	wire.Serve((&driver{brokers: strings.Split(os.Args[1], ",")}).handle)
}

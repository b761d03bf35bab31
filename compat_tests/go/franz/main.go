// franz-go under the line protocol of compat_tests/clients.py.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kwire/compat/wire"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

type driver struct {
	seeds  kgo.Opt
	admin  *kadm.Client
	member *kgo.Client
	stop   context.CancelFunc
	seen   *wire.Seen
	txn    transactions
}

func (d *driver) handle(r *wire.Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	switch r.Do {
	case "produce":
		return d.produce(ctx, r)
	case "fetch":
		return d.fetch(ctx, r)
	case "offset_for_time":
		found, err := d.admin.ListOffsetsAfterMilli(ctx, r.Time, r.Topic)
		if err != nil {
			return nil, err
		}
		at, _ := found.Lookup(r.Topic, r.Partition)
		return at.Offset, at.Err
	case "join":
		return nil, d.join(r)
	case "wait":
		return d.seen.Wait(wire.Number(r.Partitions), wire.Number(r.Records)), nil
	case "commit":
		return nil, d.member.CommitUncommittedOffsets(ctx)
	case "leave":
		d.stop()
		d.member.Close()
		return nil, nil
	}
	if strings.HasPrefix(r.Do, "txn_") {
		return d.transact(ctx, r)
	}
	return d.administer(ctx, r)
}

func (d *driver) administer(ctx context.Context, r *wire.Request) (any, error) {
	switch r.Do {
	case "create":
		made, err := d.admin.CreateTopic(ctx, int32(wire.Number(r.Partitions)), 1, r.Config, r.Topic)
		if err != nil {
			return nil, err
		}
		return nil, made.Err
	case "topics":
		topics, err := d.admin.ListTopics(ctx)
		return topics.Names(), err
	case "describe":
		topics, err := d.admin.ListTopics(ctx, r.Topic)
		return len(topics[r.Topic].Partitions), err
	case "grow":
		grown, err := d.admin.UpdatePartitions(ctx, r.Total, r.Topic)
		if err != nil {
			return nil, err
		}
		return nil, grown[r.Topic].Err
	case "set_config":
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: r.Key, Value: &r.Value}}
		altered, err := d.admin.AlterTopicConfigs(ctx, change, r.Topic)
		if err != nil {
			return nil, err
		}
		return nil, altered[0].Err
	case "get_config":
		found, err := d.admin.DescribeTopicConfigs(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		for _, c := range found[0].Configs {
			if c.Key == r.Key {
				return c.Value, found[0].Err
			}
		}
		return nil, fmt.Errorf("no key %s", r.Key)
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(r.Topic, r.Partition, r.Before, -1)
		deleted, err := d.admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return nil, err
		}
		return nil, deleted.Error()
	case "delete":
		deleted, err := d.admin.DeleteTopic(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		return nil, deleted.Err
	}
	return nil, fmt.Errorf("unknown word")
}

func (d *driver) produce(ctx context.Context, r *wire.Request) (any, error) {
	producer, err := kgo.NewClient(d.seeds, kgo.ProducerBatchCompression(codecs[r.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var records []*kgo.Record
	for _, in := range r.ToProduce() {
		record := &kgo.Record{Topic: r.Topic, Partition: in.Partition, Key: in.Key, Value: in.Value}
		if in.Time > 0 {
			record.Timestamp = time.UnixMilli(in.Time)
		}
		for _, h := range in.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		records = append(records, record)
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, record := range records {
		offsets = append(offsets, record.Offset)
	}
	return offsets, nil
}

func asWire(r *kgo.Record) wire.Record {
	headers := []wire.Header{}
	for _, h := range r.Headers {
		value := h.Value
		if value == nil {
			value = []byte{}
		}
		headers = append(headers, wire.Header{Name: h.Key, Value: value})
	}
	return wire.Record{Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp.UnixMilli(),
		Key: r.Key, Value: r.Value, Headers: headers}
}

func (d *driver) fetch(ctx context.Context, r *wire.Request) (any, error) {
	start := map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: kgo.NewOffset().At(r.Offset)}}
	consumer, err := kgo.NewClient(d.seeds, kgo.ConsumePartitions(start), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	records := []wire.Record{}
	for len(records) < r.Count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { records = append(records, asWire(record)) })
	}
	return records, nil
}

func (d *driver) join(r *wire.Request) error {
	seen := wire.NewSeen()
	held := func(now bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) { seen.Assign(moved[r.Topic], now) }
	}
	member, err := kgo.NewClient(d.seeds, kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.SessionTimeout(6*time.Second),
		kgo.OnPartitionsAssigned(held(true)), kgo.OnPartitionsRevoked(held(false)), kgo.OnPartitionsLost(held(false)),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	d.member, d.stop, d.seen = member, stop, seen
	go func() {
		for ctx.Err() == nil {
			member.PollFetches(ctx).EachRecord(func(record *kgo.Record) { seen.Add(asWire(record)) })
		}
	}()
	return nil
}

func main() {
	seeds := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	client, err := kgo.NewClient(seeds, kgo.MetadataMinAge(10*time.Millisecond)) // kadm answers from what it keeps
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	wire.Serve((&driver{seeds: seeds, admin: kadm.NewClient(client)}).handle)
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kwire/compat/wire"
)

// transactions keeps the producer of the words txn_*.
type transactions struct {
	id      kgo.Opt
	timeout kgo.Opt
	client  *kgo.Client
	isOpen  bool
}

func (d *driver) transact(ctx context.Context, r *wire.Request) (any, error) {
	t := &d.txn
	switch r.Do {
	case "txn_init":
		t.id, t.timeout = kgo.TransactionalID(r.Id), kgo.TransactionTimeout(time.Duration(r.TimeoutMs)*time.Millisecond)
		client, err := kgo.NewClient(d.seeds, t.id, t.timeout, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			return nil, err
		}
		t.client = client
		// franz-go asks for its id with the first record; here the predecessor is fenced now.
		_, _, err = client.ProducerID(ctx)
		return nil, err
	case "txn_send":
		if !t.isOpen {
			if err := t.client.BeginTransaction(); err != nil {
				return nil, err
			}
			t.isOpen = true
		}
		var records []*kgo.Record
		for _, value := range r.Values {
			records = append(records, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Value: value})
		}
		return nil, t.client.ProduceSync(ctx, records...).FirstErr()
	case "txn_end":
		t.isOpen = false
		return nil, t.client.EndTransaction(ctx, kgo.TransactionEndTry(r.Commit))
	case "txn_transform":
		return d.transform(ctx, r)
	}
	return nil, fmt.Errorf("unknown word %s", r.Do)
}

func (d *driver) transform(ctx context.Context, r *wire.Request) (any, error) {
	session, err := kgo.NewGroupTransactSession(d.seeds, d.txn.id, d.txn.timeout, kgo.ConsumerGroup(r.Group),
		kgo.ConsumeTopics(r.Source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.RequireStableFetchOffsets(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	read := [][]byte{}
	if err := session.Begin(); err != nil {
		return nil, err
	}
	for len(read) < r.Count {
		fetches := session.PollRecords(ctx, r.Count-len(read))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			read = append(read, record.Value)
			out := &kgo.Record{Topic: r.Target, Value: append(append([]byte{}, record.Value...), '!')}
			session.Produce(ctx, out, nil)
		})
	}
	ended, err := session.End(ctx, kgo.TransactionEndTry(r.Commit))
	if err == nil && ended != r.Commit {
		err = fmt.Errorf("the transaction was aborted")
	}
	return read, err
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	txnPartitions = 3 // of each transaction: a record each
	warmUpTxns    = 50
)

// producer is a transactional producer without a mind of its own (wire.go).
type producer struct {
	*wire
	topic       string
	id, group   string
	leaders     map[int32][]int32 // by broker
	coordinator int32             // of the transactional id
	groups      int32             // the coordinator of the group
	producerID  int64
	epoch       int16
	sequence    int32
	version     int // of transactions: with 2 each end bumps the epoch, and partitions add themselves (KIP-890)
	retries     int // of requests answered CONCURRENT_TRANSACTIONS
}

// again says whether the error is that the last transaction is being ended still; others end kload.
func (p *producer) again(what string, code int16) bool {
	if code == kerr.ConcurrentTransactions.Code {
		p.retries++
		return true
	}
	check(what, kerr.ErrorForCode(code))
	return false
}

// begin gets the producer's id and epoch, once the coordinator is found and has loaded.
func (p *producer) begin() {
	request := kmsg.NewPtrInitProducerIDRequest()
	request.Version, request.TransactionalID, request.TransactionTimeoutMillis = 4, &p.id, 60_000
	for {
		p.coordinator = p.find(p.id, 1)
		answer := p.ask(p.coordinator, request).(*kmsg.InitProducerIDResponse)
		err := kerr.ErrorForCode(answer.ErrorCode)
		if err == nil {
			p.producerID, p.epoch = answer.ProducerID, answer.ProducerEpoch
			return
		} else if !kerr.IsRetriable(err) {
			fail("InitProducerId", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *producer) addPartitions() {
	request := kmsg.NewPtrAddPartitionsToTxnRequest()
	request.Version, request.TransactionalID = 3, p.id
	request.ProducerID, request.ProducerEpoch = p.producerID, p.epoch
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic = p.topic
	for index := range int32(txnPartitions) {
		topic.Partitions = append(topic.Partitions, index)
	}
	request.Topics = append(request.Topics, topic)
	for again := true; again; {
		again = false
		for _, partition := range p.ask(p.coordinator, request).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions {
			again = again || p.again("AddPartitionsToTxn", partition.ErrorCode)
		}
	}
}

// produce writes one record to each partition: a request to each leader, all at once.
func (p *producer) produce() {
	requests := map[int32]*kmsg.ProduceRequest{}
	for broker, partitions := range p.leaders {
		request := kmsg.NewPtrProduceRequest()
		request.Version, request.TransactionID, request.Acks, request.TimeoutMillis = 9, &p.id, -1, 30_000
		if p.version == 2 {
			request.Version = 12
		}
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = p.topic
		for _, index := range partitions {
			partition := kmsg.NewProduceRequestTopicPartition()
			partition.Partition = index
			partition.Records = batch(p.producerID, p.epoch, p.sequence, make([]byte, 100))
			topic.Partitions = append(topic.Partitions, partition)
		}
		request.Topics = append(request.Topics, topic)
		requests[broker] = request
		p.send(broker, request)
	}
	for broker, request := range requests {
		for again := false; ; again = true {
			if again {
				p.send(broker, request)
			}
			partitions := p.receive(broker, request).(*kmsg.ProduceResponse).Topics[0].Partitions
			if !p.refused(partitions) {
				break
			}
		}
	}
	p.sequence++
}

// refused says whether the request is to be repeated. With version 2 the leader adds its partitions to the transaction,
// and may give up while the last one is being ended still; a new topic's leader may not know yet that it is one.
func (p *producer) refused(partitions []kmsg.ProduceResponseTopicPartition) bool {
	for _, partition := range partitions {
		switch err := kerr.ErrorForCode(partition.ErrorCode); err {
		case kerr.ConcurrentTransactions, kerr.NotEnoughReplicas, kerr.NotLeaderForPartition:
			p.retries++
			return true
		default:
			check("Produce", err)
		}
	}
	return false
}

func (p *producer) sendOffsets(offset int64) {
	added := kmsg.NewPtrAddOffsetsToTxnRequest()
	added.Version, added.TransactionalID, added.Group = 3, p.id, p.group
	added.ProducerID, added.ProducerEpoch = p.producerID, p.epoch
	for p.again("AddOffsetsToTxn", p.ask(p.coordinator, added).(*kmsg.AddOffsetsToTxnResponse).ErrorCode) {
	}
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.Version, request.TransactionalID, request.Group, request.Generation = 3, p.id, p.group, -1
	request.ProducerID, request.ProducerEpoch = p.producerID, p.epoch
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = p.topic, append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	for {
		code := p.ask(p.groups, request).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
		if code != kerr.CoordinatorLoadInProgress.Code && code != kerr.NotCoordinator.Code {
			check("TxnOffsetCommit", kerr.ErrorForCode(code))
			return
		}
		time.Sleep(20 * time.Millisecond)
		p.groups = p.find(p.group, 0)
	}
}

func (p *producer) commit() {
	request := kmsg.NewPtrEndTxnRequest()
	request.Version, request.TransactionalID, request.Commit = 3, p.id, true
	if p.version == 2 {
		request.Version = 5
	}
	request.ProducerID, request.ProducerEpoch = p.producerID, p.epoch
	for {
		answer := p.ask(p.coordinator, request).(*kmsg.EndTxnResponse)
		if !p.again("EndTxn", answer.ErrorCode) {
			if p.version == 2 {
				p.producerID, p.epoch, p.sequence = answer.ProducerID, answer.ProducerEpoch, 0
			}
			return
		}
	}
}

// transactions: a record to each of some partitions, committed, the next when the last is answered. What a broker
// does after its answer is in the time of the next transaction, which is refused until then, and repeated at once.
func (l *load) transactions(ctx context.Context, figure string, withOffsets bool, version int) {
	topic := l.name + "-" + figure
	admin := l.client()
	l.create(ctx, kadm.NewClient(admin), topic, txnPartitions)
	admin.Close()
	w := newWire(l.seed)
	defer w.close()
	p := &producer{wire: w, topic: topic, id: topic, group: topic, leaders: map[int32][]int32{}, version: version}
	for index, leader := range w.leaders(topic) {
		p.leaders[leader] = append(p.leaders[leader], int32(index))
	}
	p.begin()
	if withOffsets {
		p.groups = w.find(p.group, 0)
	}
	var commits, wholes []time.Duration
	for i := range l.txns + warmUpTxns {
		if i == warmUpTxns {
			p.retries = 0
		}
		begin := time.Now()
		if version < 2 {
			p.addPartitions()
		}
		p.produce()
		if withOffsets {
			p.sendOffsets(int64(i))
		}
		commit := time.Now()
		p.commit()
		if i >= warmUpTxns {
			commits, wholes = append(commits, time.Since(commit)), append(wholes, time.Since(begin))
		}
	}
	l.note(figure, commits, wholes)
	l.figures[figure+"_retries"] = float64(p.retries) / float64(l.txns)
}

func (l *load) note(figure string, commits, wholes []time.Duration) {
	l.figures[figure+"_commit_p50_ms"] = percentile(commits, .5)
	l.figures[figure+"_commit_p99_ms"] = percentile(commits, .99)
	l.figures[figure+"_p50_ms"] = percentile(wholes, .5)
	l.figures[figure+"_p99_ms"] = percentile(wholes, .99)
}

// franzTransactions: the same by franz-go, which waits 20 ms before it repeats what was refused.
func (l *load) franzTransactions(ctx context.Context) {
	topic := l.name + "-franz"
	client := l.client(kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0), kgo.TransactionalID(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	l.create(ctx, kadm.NewClient(client), topic, txnPartitions)
	value := make([]byte, 100)
	var commits, wholes []time.Duration
	for i := range l.txns + warmUpTxns {
		begin := time.Now()
		check("begin", client.BeginTransaction())
		var records []*kgo.Record
		for index := range int32(txnPartitions) {
			records = append(records, &kgo.Record{Partition: index, Value: value})
		}
		check("produce", client.ProduceSync(ctx, records...).FirstErr())
		commit := time.Now()
		check(fmt.Sprintf("commit %d", i), client.EndTransaction(ctx, kgo.TryCommit))
		if i >= warmUpTxns {
			commits, wholes = append(commits, time.Since(commit)), append(wholes, time.Since(begin))
		}
	}
	l.note("txn_franz", commits, wholes)
}

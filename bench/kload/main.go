// kload loads one Kafka-compatible broker or cluster, phase by phase, and prints one JSON object of figures.
//
// The same binary with the same parameters goes to each broker of a comparison; bench/run.py does so.
// Times are milliseconds, throughput is 10^6 bytes of record values a second.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type load struct {
	seed       string
	seeds      kgo.Opt
	name       string // of the throughput topic; prefix of all others
	records    int
	sizeBytes  int
	partitions int
	replicas   int
	pings      int
	topics     int
	groups     int
	txns       int
	figures    map[string]float64
}

const warmUpPings = 100

// percentile sorts the times it is given.
func percentile(times []time.Duration, q float64) float64 {
	slices.Sort(times)
	return float64(times[int(q*float64(len(times)-1))].Nanoseconds()) / 1e6
}

func (l *load) client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, l.seeds)...)
	if err != nil {
		fail("client", err)
	}
	return client
}

func fail(phase string, err error) {
	fmt.Fprintf(os.Stderr, "kload: %s: %v\n", phase, err)
	os.Exit(1)
}

func check(phase string, err error) {
	if err != nil {
		fail(phase, err)
	}
}

// create makes a topic and says how long the answer took.
func (l *load) create(ctx context.Context, admin *kadm.Client, name string, partitions int) time.Duration {
	begin := time.Now()
	made, err := admin.CreateTopic(ctx, int32(partitions), int16(l.replicas), nil, name)
	took := time.Since(begin)
	check("create topic", err)
	check("create topic", made.Err)
	return took
}

// createTopics: round trips of CreateTopics, one topic each, one after the other.
func (l *load) createTopics(ctx context.Context) {
	client := l.client()
	defer client.Close()
	admin := kadm.NewClient(client)
	var times []time.Duration
	for i := range l.topics + 5 {
		took := l.create(ctx, admin, fmt.Sprintf("%s-t%d", l.name, i), 1)
		if i >= 5 { // connections and first-use costs
			times = append(times, took)
		}
	}
	l.figures["topic_p50_ms"] = percentile(times, .5)
	l.figures["topic_p99_ms"] = percentile(times, .99)
}

// roundTrips: one record of 100 bytes, acks=all, the next when the last is acknowledged.
func (l *load) roundTrips(ctx context.Context) {
	client := l.client(kgo.DefaultProduceTopic(l.name+"-ping"), kgo.ProducerLinger(0))
	defer client.Close()
	l.create(ctx, kadm.NewClient(client), l.name+"-ping", 1)
	value := make([]byte, 100)
	var times []time.Duration
	for i := range l.pings + warmUpPings {
		begin := time.Now()
		check("round trip", client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr())
		if i >= warmUpPings {
			times = append(times, time.Since(begin))
		}
	}
	l.figures["ping_p50_ms"] = percentile(times, .5)
	l.figures["ping_p99_ms"] = percentile(times, .99)
}

func (l *load) megabytes() float64 { return float64(l.records) * float64(l.sizeBytes) / 1e6 }

// produce: all records as fast as the broker takes them, batches up to 1 MiB, no compression.
func (l *load) produce(ctx context.Context) {
	client := l.client(kgo.DefaultProduceTopic(l.name), kgo.ProducerBatchMaxBytes(1<<20),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(50_000),
		kgo.ProducerLinger(5*time.Millisecond))
	defer client.Close()
	value := make([]byte, l.sizeBytes)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	failed := make(chan error, 1)
	begin := time.Now()
	for range l.records {
		client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	check("produce", client.Flush(ctx))
	took := time.Since(begin)
	select {
	case err := <-failed:
		fail("produce", err)
	default:
	}
	l.figures["produce_MBps"] = l.megabytes() / took.Seconds()
}

// fetch: all records once, from the start.
func (l *load) fetch(ctx context.Context) {
	client := l.client(kgo.ConsumeTopics(l.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(50<<20), kgo.FetchMaxPartitionBytes(4<<20))
	defer client.Close()
	begin := time.Now()
	for read := 0; read < l.records; {
		fetches := client.PollFetches(ctx)
		check("fetch", fetches.Err0())
		read += fetches.NumRecords()
	}
	l.figures["fetch_MBps"] = l.megabytes() / time.Since(begin).Seconds()
}

// newGroups: from a new client to its first record, as the only member of a new group. The first
// group of a broker's life makes __consumer_offsets; it is reported by itself.
func (l *load) newGroups(ctx context.Context) {
	topic := l.name + "-g"
	writer := l.client(kgo.DefaultProduceTopic(topic))
	l.create(ctx, kadm.NewClient(writer), topic, 1)
	check("group", writer.ProduceSync(ctx, &kgo.Record{Value: []byte("first")}).FirstErr())
	writer.Close()
	var times []time.Duration
	for i := range l.groups + 1 {
		begin := time.Now()
		client := l.client(kgo.ConsumerGroup(fmt.Sprintf("%s-g%d", l.name, i)), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for client.PollRecords(ctx, 1).NumRecords() == 0 {
			check("group", ctx.Err())
		}
		took := time.Since(begin)
		client.Close()
		if i == 0 {
			l.figures["group_first_ms"] = float64(took.Microseconds()) / 1000
		} else {
			times = append(times, took)
		}
	}
	l.figures["group_p50_ms"] = percentile(times, .5)
}

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "bootstrap servers")
	only := flag.String("only", "topics,ping,produce,fetch,group", "phases to run, in this order; also txn, txn-offsets, txn-2, txn-franz")
	l := &load{figures: map[string]float64{}}
	flag.StringVar(&l.name, "topic", fmt.Sprintf("kload-%d", os.Getpid()), "name of the throughput topic")
	flag.IntVar(&l.records, "records", 200_000, "records to produce and to fetch")
	flag.IntVar(&l.sizeBytes, "size", 1024, "bytes a record")
	flag.IntVar(&l.partitions, "partitions", 6, "partitions of the throughput topic")
	flag.IntVar(&l.replicas, "replicas", 1, "replicas of every partition")
	flag.IntVar(&l.pings, "pings", 2000, "acks=all round trips")
	flag.IntVar(&l.topics, "topics", 50, "topics created one by one")
	flag.IntVar(&l.groups, "groups", 9, "groups joined one after the other")
	flag.IntVar(&l.txns, "txns", 500, "transactions, one after the other")
	flag.Parse()
	l.seed = strings.Split(*brokers, ",")[0]
	l.seeds = kgo.SeedBrokers(strings.Split(*brokers, ",")...)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	phases := map[string]func(context.Context){
		"topics": l.createTopics, "ping": l.roundTrips, "produce": l.produce, "fetch": l.fetch, "group": l.newGroups,
		"txn":         func(ctx context.Context) { l.transactions(ctx, "txn", false, 1) },
		"txn-offsets": func(ctx context.Context) { l.transactions(ctx, "txn_offsets", true, 1) },
		"txn-2":       func(ctx context.Context) { l.transactions(ctx, "txn_2", false, 2) },
		"txn-franz":   l.franzTransactions,
	}
	if strings.Contains(*only, "produce") {
		client := l.client()
		l.create(ctx, kadm.NewClient(client), l.name, l.partitions)
		client.Close()
	}
	for name := range strings.SplitSeq(*only, ",") {
		run, known := phases[name]
		if !known {
			fail("flags", fmt.Errorf("no phase %q", name))
		}
		run(ctx)
	}
	check("output", json.NewEncoder(os.Stdout).Encode(l.figures))
}

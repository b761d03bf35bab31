// franz-go's GroupTransactSession in a consume–transform–produce loop until stdin ends;
// compat_tests/transaction_soak/workers.py says what the words on stdout mean.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const aTransaction = 40

func say(words ...any) {
	line := fmt.Sprintln(words...)
	fmt.Print(strings.ReplaceAll(line[:len(line)-1], "\n", " ") + "\n")
}

func open(args []string) (*kgo.GroupTransactSession, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(args[0], ",")...),
		kgo.TransactionalID(args[1]), kgo.TransactionTimeout(time.Minute),
		kgo.ConsumerGroup(args[3]), kgo.ConsumeTopics(args[5]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxWait(200 * time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.SessionTimeout(4 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.ProducerLinger(5 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.RequestRetries(600), kgo.RetryTimeout(time.Minute), kgo.AlwaysRetryEOF(),
	}
	if args[4] != "-" {
		options = append(options, kgo.InstanceID(args[4]))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err == nil {
		// franz-go asks for its id with the first record; here the predecessor is fenced now.
		_, _, err = session.Client().ProducerID(context.Background())
	}
	return session, err
}

func run(args []string, stopping *atomic.Bool) error {
	session, err := open(args)
	if err != nil {
		return err
	}
	partitions, err := strconv.Atoi(args[7])
	if err != nil {
		return err
	}
	say("ready")
	for number := 1; !stopping.Load(); {
		wait, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := session.PollRecords(wait, aTransaction)
		cancel()
		for _, failed := range fetches.Errors() {
			if errors.Is(failed.Err, kerr.FencedInstanceID) {
				return failed.Err
			}
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				say("error", failed.Err)
			}
		}
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		if err := transact(session, records, args, int32(partitions), number); err != nil {
			return err
		}
		number++
	}
	session.Close()
	return nil
}

func transact(session *kgo.GroupTransactSession, records []*kgo.Record, args []string, partitions int32, number int) error {
	ctx := context.Background()
	if err := session.Begin(); err != nil {
		return err
	}
	var failed kgo.FirstErrPromise
	for _, r := range records {
		value := fmt.Sprintf("%d %d %s %s %d %d", r.Partition, r.Offset, args[1], args[2], number, len(records))
		out := &kgo.Record{Topic: args[6], Partition: int32(r.Offset % int64(partitions)), Value: []byte(value)}
		session.Produce(ctx, out, failed.Promise())
	}
	err := session.Client().Flush(ctx)
	if err == nil {
		err = failed.Err()
	}
	if err != nil {
		say("error", err)
	} else {
		say("middle", number)
		time.Sleep(20 * time.Millisecond)
	}
	committed, ended := session.End(ctx, kgo.TransactionEndTry(err == nil && number%5 != 0))
	switch {
	case ended != nil:
		return ended
	case committed:
		say("committed", number)
	default:
		say("aborted", number)
	}
	return nil
}

// answered says whether a broker's answer is the cause, and not that there was none.
func answered(err error) bool {
	var code *kerr.Error
	return errors.As(err, &code)
}

func main() {
	stopping := &atomic.Bool{}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stopping.Store(true)
	}()
	err := run(os.Args[1:], stopping)
	switch {
	case err == nil:
		say("ended")
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch),
		errors.Is(err, kerr.FencedInstanceID):
		say("fenced", err)
	case answered(err):
		say("failed", err)
	default:
		// The broker that is to be asked has just died: the session says so and does not try again.
		say("lost", err)
	}
}

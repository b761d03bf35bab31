// franz-go while faults are set: the words of compat_tests/fault_clients/__init__.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var numbers = regexp.MustCompile("-?[0-9a-f]*[0-9][0-9a-f]*")

type request struct {
	Act        string `json:"act"`
	Servers    string `json:"servers"`
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	Value      string `json:"value"`
	Count      int    `json:"count"`
	Idempotent bool   `json:"idempotent"`
}

func send(ctx context.Context, r request) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(r.Servers, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProduceRequestTimeout(time.Second),
		kgo.RequestTimeoutOverhead(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RecordDeliveryTimeout(25 * time.Second),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}
	if !r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for i := 0; i < r.Count; i++ {
		record := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Value: []byte(r.Value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func read(ctx context.Context, r request) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(r.Servers, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			r.Topic: {r.Partition: kgo.NewOffset().AtStart()},
		}),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(50*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			return nil
		}
	}
}

func kind(err error) string {
	if err == nil {
		return "ok"
	}
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Message
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	name := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
	if name == "errors.errorString" {
		return numbers.ReplaceAllString(err.Error(), "…")
	}
	return name
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		var err error
		if r.Act == "send" {
			err = send(ctx, r)
		} else {
			err = read(ctx, r)
		}
		cancel()
		said := map[string]string{"kind": kind(err), "text": fmt.Sprint(err)}
		answer, _ := json.Marshal(map[string]any{"ok": said})
		fmt.Println(string(answer))
	}
}

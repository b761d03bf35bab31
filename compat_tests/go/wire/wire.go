// Package wire is the Go side of the line protocol of compat_tests/clients.py.
package wire

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Header is a record header: [name, value in base64] in JSON.
type Header struct {
	Name  string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

func (h *Header) UnmarshalJSON(data []byte) error {
	pair := []any{&h.Name, &h.Value}
	return json.Unmarshal(data, &pair)
}

// Record is a record; Time 0 means that the client sets it. A nil key or value is null.
type Record struct {
	Partition int32    `json:"p"`
	Offset    int64    `json:"o"`
	Time      int64    `json:"t"`
	Key       []byte   `json:"k"`
	Value     []byte   `json:"v"`
	Headers   []Header `json:"h"`
}

// Request holds the arguments of every word; each word uses some.
type Request struct {
	Do         string             `json:"do"`
	Topic      string             `json:"topic"`
	Codec      string             `json:"codec"`
	Records    json.RawMessage    `json:"records"`
	Partition  int32              `json:"partition"`
	Offset     int64              `json:"offset"`
	Count      int                `json:"count"`
	Time       int64              `json:"time"`
	Partitions json.RawMessage    `json:"partitions"`
	Config     map[string]*string `json:"config"`
	Total      int                `json:"total"`
	Key        string             `json:"key"`
	Value      string             `json:"value"`
	Before     int64              `json:"before"`
	Group      string             `json:"group"`
	Id         string             `json:"id"`
	TimeoutMs  int64              `json:"timeout_ms"`
	Values     [][]byte           `json:"values"`
	Commit     bool               `json:"commit"`
	Source     string             `json:"source"`
	Target     string             `json:"target"`
}

// Number reads a field that is a number for this word.
func Number(raw json.RawMessage) int {
	var n int
	if err := json.Unmarshal(raw, &n); err != nil {
		panic(err)
	}
	return n
}

// ToProduce reads the records of a produce request.
func (r *Request) ToProduce() []Record {
	var records []Record
	if err := json.Unmarshal(r.Records, &records); err != nil {
		panic(err)
	}
	return records
}

// Seen is what a group member holds and has read; safe for use by several goroutines.
type Seen struct {
	lock       sync.Mutex
	changed    *sync.Cond
	partitions map[int32]bool
	records    []Record
}

// NewSeen returns an empty Seen.
func NewSeen() *Seen {
	s := &Seen{partitions: map[int32]bool{}, records: []Record{}}
	s.changed = sync.NewCond(&s.lock)
	return s
}

// Add appends a record.
func (s *Seen) Add(record Record) {
	s.lock.Lock()
	s.records = append(s.records, record)
	s.lock.Unlock()
	s.changed.Broadcast()
}

// Assign marks partitions as held or not.
func (s *Seen) Assign(partitions []int32, held bool) {
	s.lock.Lock()
	for _, p := range partitions {
		if held {
			s.partitions[p] = true
		} else {
			delete(s.partitions, p)
		}
	}
	s.lock.Unlock()
	s.changed.Broadcast()
}

// Wait returns once exactly `partitions` partitions are held and at least `records` records are read.
func (s *Seen) Wait(partitions, records int) any {
	s.lock.Lock()
	defer s.lock.Unlock()
	for len(s.partitions) != partitions || len(s.records) < records {
		s.changed.Wait()
	}
	held := []int32{}
	for p := range s.partitions {
		held = append(held, p)
	}
	return map[string]any{"partitions": held, "records": append([]Record{}, s.records...)}
}

// Serve answers requests from stdin until it ends.
func Serve(handle func(*Request) (any, error)) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var request Request
		answer := map[string]any{}
		if err := json.Unmarshal(line, &request); err != nil {
			answer["error"] = err.Error()
		} else if result, err := handle(&request); err != nil {
			answer["error"] = fmt.Sprintf("%s: %v", request.Do, err)
		} else {
			answer["ok"] = result
		}
		if err := out.Encode(answer); err != nil {
			return
		}
	}
}

package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is a client without a mind of its own: a connection to each broker, requests and responses. It never
// sleeps and never does what it is not told, so that what is measured is the broker.
type wire struct {
	addresses map[int32]string
	opened    map[int32]net.Conn
	formatter *kmsg.RequestFormatter
	sent      int32
}

func newWire(seed string) *wire {
	w := &wire{addresses: map[int32]string{-1: seed}, opened: map[int32]net.Conn{}, formatter: kmsg.NewRequestFormatter()}
	request := kmsg.NewPtrMetadataRequest()
	request.Version = 7
	request.Topics = []kmsg.MetadataRequestTopic{}
	for _, broker := range w.ask(-1, request).(*kmsg.MetadataResponse).Brokers {
		w.addresses[broker.NodeID] = fmt.Sprintf("%s:%d", broker.Host, broker.Port)
	}
	return w
}

func (w *wire) close() {
	for _, connection := range w.opened {
		connection.Close()
	}
}

func (w *wire) send(broker int32, request kmsg.Request) {
	connection := w.opened[broker]
	if connection == nil {
		var err error
		connection, err = net.DialTimeout("tcp", w.addresses[broker], 10*time.Second)
		check("connect", err)
		w.opened[broker] = connection
	}
	w.sent++
	_, err := connection.Write(w.formatter.AppendRequest(nil, request, w.sent))
	check("send", err)
}

// receive reads the response to the request that was sent first to this broker and is not answered yet.
func (w *wire) receive(broker int32, request kmsg.Request) kmsg.Response {
	connection := w.opened[broker]
	check("receive", connection.SetReadDeadline(time.Now().Add(time.Minute)))
	var size [4]byte
	_, err := io.ReadFull(connection, size[:])
	check("receive", err)
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(connection, frame)
	check("receive", err)
	response, head := request.ResponseKind(), 4
	if response.IsFlexible() {
		head++ // no tagged fields
	}
	check("response", response.ReadFrom(frame[head:]))
	return response
}

func (w *wire) ask(broker int32, request kmsg.Request) kmsg.Response {
	w.send(broker, request)
	return w.receive(broker, request)
}

// find the coordinator of a group (kind 0) or a transactional id (kind 1), once there is one.
func (w *wire) find(name string, kind int8) int32 {
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.Version, request.CoordinatorKey, request.CoordinatorType = 3, name, kind
	for {
		found := w.ask(-1, request).(*kmsg.FindCoordinatorResponse)
		if found.ErrorCode == 0 {
			return found.NodeID
		}
		time.Sleep(20 * time.Millisecond) // its topic is being made
	}
}

// leaders of a topic's partitions, once each has one.
func (w *wire) leaders(topic string) []int32 {
	request := kmsg.NewPtrMetadataRequest()
	request.Version = 7
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = &topic
	request.Topics = append(request.Topics, wanted)
	for {
		found := w.ask(-1, request).(*kmsg.MetadataResponse).Topics[0]
		leaders := make([]int32, len(found.Partitions))
		missing := found.ErrorCode != 0
		for _, partition := range found.Partitions {
			leaders[partition.Partition] = partition.Leader
			missing = missing || partition.ErrorCode != 0
		}
		if !missing {
			return leaders
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// batch of one record of a transaction.
func batch(producerID int64, epoch int16, sequence int32, value []byte) []byte {
	now := time.Now().UnixMilli()
	record := []byte{0, 0, 0, 1} // attributes, deltas of time and offset; no key
	record = append(binary.AppendVarint(record, int64(len(value))), value...)
	record = append(record, 0) // no headers
	made := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 0x10, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: producerID, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: 1,
		Records: append(binary.AppendVarint(nil, int64(len(record))), record...),
	}
	raw := made.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// Package producer decides, for one partition, whether a batch may go in: sequences, duplicates, fencing, open
// transactions, and from these the last stable offset and the list of aborted transactions (kafka-eos.md A, C.4, C.5).
package producer

// Aborted is one aborted transaction of a partition: its data lies in [FirstOffset, LastOffset), its abort marker
// at LastOffset. LastStable is the partition's last stable offset right after the marker (kafka-eos.md C.5).
type Aborted struct {
	ProducerID  int64
	FirstOffset int64
	LastOffset  int64
	LastStable  int64
}

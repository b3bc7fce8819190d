// Package differential drives `strandline serve` and Apache Kafka side by side with the same random requests and compares
// every answer: error codes, offsets, ends at both isolation levels, aborted transactions, batches, committed offsets,
// members, states, settings. Build tag: peers.
//
// A run consists of episodes: short scripts over fresh topics, groups and transactional ids, each given by its seed.
// What two brokers choose freely (producer ids, epochs, topic ids, member ids) is compared by pairs: the first time that
// both name something, the two names belong together from then on. Where Apache Kafka answers because its own steps lie
// apart (CONCURRENT_TRANSACTIONS, a topic that is not everywhere yet), the driver asks it again before it compares.
//
//	go test -tags peers -timeout 6h ./test/differential -args -steps 1000000
//	go test -tags peers -v ./test/differential -args -seed 4711 -episodes 1
package differential

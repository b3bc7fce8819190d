// Package differential drives `strandline serve` and Apache Kafka side by side with the same random requests and compares
// every answer: error codes, offsets, ends at both isolation levels, aborted transactions, batches, committed offsets,
// members, states, settings. Build tag: peers.
//
// A run consists of episodes: short scripts over fresh topics, groups and transactional ids, each given by its seed.
// What two brokers choose freely (producer ids, epochs, topic ids, member ids) is compared by pairs: the first time that
// both name something, the two names belong together from then on. Where Apache Kafka answers because its own steps lie
// apart (CONCURRENT_TRANSACTIONS, a topic that is not everywhere yet), the driver asks it again before it compares.
//
// One episode does not hinder another, and spends its time waiting for Apache Kafka: several run at the same time. A second
// test restarts both brokers in the middle of episodes. The long run, whose output says steps, seeds and differences:
//
//	go test -tags peers -run TestDifferential -v -timeout 3h ./test/differential -args -steps 1000000 -seed 1 -workers 12 -failures 1000
//
// With -scripts each episode that differs leaves its script in a folder, with -failures the run ends after that many of them.
// One episode again:
//
//	go test -tags peers -v ./test/differential -args -seed 4711 -episodes 1
package differential

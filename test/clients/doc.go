// Package clients runs foreign clients against `strandline serve`, one test a client: programs in their own languages (one
// folder a client), franz-go's own suite, kcat, and Apache Kafka's clients, tools and Streams. The tests write the tables of
// compatibility. docs/clients has a page on each. Build tag: peers.
package clients

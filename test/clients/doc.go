// Package clients runs foreign clients against `strandline serve`: kcat, librdkafka's Python binding, franz-go's own
// tests, and Apache Kafka's clients, tools and Streams. Build tag: peers.
package clients

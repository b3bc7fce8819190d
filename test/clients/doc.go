// Package clients runs foreign clients against `strandline serve`: kcat, librdkafka's Python binding, franz-go's own
// tests and Apache Kafka's tools. Build tag: peers.
package clients

// Package flights runs the flights job of examples/01-flights as processes: killed at any moment and run again, over a
// broker that is killed, on a real Apache Kafka, and with Azurite as the blob store. The result must always equal the
// table. The tests carry the build tag peers.
package flights

// Package blob is a sink that takes part in a job's transactions: it writes Avro object container files as block
// blobs, to Azure Blob Storage or to a local folder.
//
// Block blobs are made for two-phase commit. Staged blocks are durable and invisible; putting the block list makes
// them one visible blob. A writer therefore stages what it gets in the background, Prepare stages the rest and returns
// a token that lists the blocks, the Kafka transaction carries the token, and only after that transaction Commit puts
// the lists, create-only. A zombie's token never commits, so its blocks never become visible; a lost reply is resolved
// by reading the blob back.
//
// A blob spans commits: the token lists done blobs, which Commit publishes, and open ones, which the next epoch or the
// next owner continues. What decides (token.go, name.go, ledger.go, resolve.go, ocf.go) is pure; sink.go, writer.go and
// stage.go drive it; azure.go and folder.go are the stores. The byte formats are docs/formats/blob-token.md and
// docs/formats/blob-name.md. The design follows Apache Samza's Azure Blob SystemProducer.
package blob

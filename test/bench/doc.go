// Package bench measures Strandline beside its peers in one run on one machine: medians of interleaved rounds, the
// broker's CPU read from its process. Build tag: peers.
//
//	go test -tags peers -run '^$' -bench . -benchtime 1x -timeout 60m ./test/bench
package bench

// Command kfake runs franz-go's kfake as one broker on disk, as a peer of the benchmark and of strandline drill.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	dir := flag.String("data-dir", "", "folder of the data")
	sync := flag.Bool("sync", false, "sync every write")
	port := flag.Int("port", 0, "port to listen on (0: a free one)")
	flag.Parse()
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.Ports(*port), kfake.DataDir(*dir), kfake.AllowAutoTopicCreation()}
	if *sync {
		opts = append(opts, kfake.SyncWrites())
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
	defer c.Close()
	fmt.Println("kfake listening on", c.ListenAddrs()[0])
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	<-stop
}

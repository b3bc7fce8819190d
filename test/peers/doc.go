// Package peers starts the programs that whole-process tests meet: the strandline binary itself, Apache Kafka and its
// tools, clients in other languages and Azurite. What is missing is installed into a cache folder
// (STRANDLINE_PEERS, else the user's cache folder) or, for Debian packages, by test/peers/install.sh.
// Every process is started on a port of its own and killed when its test ends.
package peers

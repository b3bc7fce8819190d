// Package blob tests stream/blob against Azurite (npm), Microsoft's emulator of Azure Blob Storage: the contract suites
// of stores and sinks, what is said when something is wrong, and an outage in the middle of a job. The tests carry the
// build tag peers and install Azurite themselves.
package blob

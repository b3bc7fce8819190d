// Package protocol holds the conversations of a worker with its cluster: how a job starts, how a task is restored, how a
// transaction is committed, who may commit. They are blocking code without goroutines or clocks over a kafka.Client and a
// Producer, so that the workers of package task and the simulation run the same.
package protocol

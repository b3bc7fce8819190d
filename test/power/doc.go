// Package power cuts the power of real brokers: SIGKILL on a disk that keeps unsynced writes in the broker's memory
// (vfs.Volatile), and an ext4 file system on a loop device that is shut down when the broker dies. What was acknowledged
// must then still be there, once, and what was seen too; with Durability write it must be possible to see it lost.
// Build tag: peers.
package power

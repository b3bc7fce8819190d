// Package broker runs `strandline serve` as users do, as a process of its own, and treats it badly: SIGKILL under load and
// at every failpoint of every transactional request, transactions left open, a second process on its folder, wrong flags,
// hostile clients. What was acknowledged must then still be there, once. Build tag: peers.
package broker

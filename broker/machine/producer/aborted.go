package producer

import (
	"cmp"
	"slices"
	"sort"

	"github.com/strandline-io/strandline/internal/mutant"
)

// AbortedWithin selects the aborted transactions of which data may lie in [from, upper), ascending by first offset as
// clients expect them (kafka-eos.md C.5). all ascends by last offset, as Partition.Aborted gives it. One that is left
// out would show aborted data to the client. The result is the caller's.
func AbortedWithin(all []Aborted, from, upper int64) []Aborted {
	var found []Aborted
	i := sort.Search(len(all), func(i int) bool { return all[i].LastOffset >= from })
	for ; i < len(all); i++ {
		if all[i].FirstOffset < upper {
			found = append(found, all[i])
		}
		if all[i].LastStable >= upper {
			break // everything that ended later began at or behind upper
		}
	}
	if mutant.On("aborted list one short") && len(found) > 0 {
		found = found[:len(found)-1]
	}
	slices.SortFunc(found, func(a, b Aborted) int {
		return cmp.Or(cmp.Compare(a.FirstOffset, b.FirstOffset), cmp.Compare(a.ProducerID, b.ProducerID))
	})
	return found
}

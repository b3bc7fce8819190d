//go:build peers

package differential

import (
	"fmt"
	"strings"

	"github.com/strandline-io/strandline/broker/wire"
)

// request is a key and a version of it.
type request struct{ key, version int16 }

// coveredFrom is how many steps it takes to have sent every version of every key.
const coveredFrom = 10000

// coverage counts what was sent and compared, and lists what docs/compat.md says is served and was never sent.
func coverage(sent map[request]int) (text string, missing []string) {
	var all []string
	for _, api := range wire.APIs() {
		n := 0
		for v := api.Min; v <= api.Max; v++ {
			n += sent[request{api.Key, v}]
			if sent[request{api.Key, v}] == 0 {
				missing = append(missing, fmt.Sprintf("%s v%d", api.Name, v))
			}
		}
		all = append(all, fmt.Sprintf("%s %d-%d: %d", api.Name, api.Min, api.Max, n))
	}
	return strings.Join(all, ", "), missing
}

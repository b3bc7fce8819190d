package brokertest_test

import "github.com/twmb/franz-go/pkg/kversion"

// oldVersions are those of a client that does not know KIP-890.
func oldVersions() *kversion.Versions { return kversion.V3_9_0() }

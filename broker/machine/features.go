package machine

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// Feature is one of the cluster's feature levels (KIP-584).
type Feature struct {
	Name     string
	Min, Max int16 // what this program can do
	Level    int16 // what is finalized; 0 is off
}

// Features are all feature levels, ascending by name. They are never changed, only replaced, and then Epoch grows: Java clients
// ignore the levels while it is negative and take only a higher one for a change.
type Features struct {
	Epoch int64
	All   []Feature
}

// Names of the features.
const (
	groupVersion       = "group.version"
	metadataVersion    = "metadata.version"
	transactionVersion = "transaction.version"
)

// firstFeaturesEpoch is the epoch as long as nobody has moved a level. It must grow when the defaults below change.
const firstFeaturesEpoch = 3

// defaultFeatures: transaction.version 2 is what makes clients use KIP-890's implicit adding and epoch bumps, group.version 1
// lets them use KIP-848's groups, metadata.version says how new the broker is and stays.
var defaultFeatures = []Feature{
	{Name: groupVersion, Min: 0, Max: 1, Level: 1},
	{Name: metadataVersion, Min: 7, Max: 30, Level: 30},
	{Name: transactionVersion, Min: 0, Max: 2, Level: 2},
}

// features is what was moved.
type features struct {
	changes int64
	levels  []featureLevel // ascending by name
}

type featureLevel struct {
	name  string
	level int16
}

func (f *features) find(name string) (int, bool) {
	return slices.BinarySearchFunc(f.levels, name, func(l featureLevel, name string) int { return cmp.Compare(l.name, name) })
}

// Features returns the feature levels.
func (m *Machine) Features() *Features {
	all := &Features{Epoch: firstFeaturesEpoch + m.features.changes, All: slices.Clone(defaultFeatures)}
	for i := range all.All {
		all.All[i].Level = m.level(all.All[i].Name)
	}
	return all
}

// level is the finalized level of one feature.
func (m *Machine) level(name string) int16 {
	if at, moved := m.features.find(name); moved {
		return m.features.levels[at].level
	}
	for i := range defaultFeatures {
		if defaultFeatures[i].Name == name {
			return defaultFeatures[i].Level
		}
	}
	return 0
}

func (m *Machine) applyFeature(name string, level int16) error {
	if name == "" || level < 0 {
		return codec.Corrupt("feature %q gets level %d", name, level)
	}
	f := &m.features
	f.changes++
	at, moved := f.find(name)
	if moved {
		f.levels[at].level = level
	} else {
		f.levels = slices.Insert(f.levels, at, featureLevel{name, level})
	}
	return nil
}

func (f *features) append(dst []byte) []byte {
	dst = binary.AppendVarint(dst, f.changes)
	dst = binary.AppendUvarint(dst, uint64(len(f.levels)))
	for _, l := range f.levels {
		dst = binary.AppendVarint(codec.AppendString(dst, l.name), int64(l.level))
	}
	return dst
}

func readFeatures(r *reader) (f features) {
	f.changes = r.offset()
	for range r.Count(2) {
		l := featureLevel{name: r.String(), level: r.Int16()}
		if n := len(f.levels); l.level < 0 || n > 0 && f.levels[n-1].name >= l.name {
			r.Fail("feature %q at level %d, not behind its predecessor", l.name, l.level)
		}
		f.levels = append(f.levels, l)
	}
	return f
}

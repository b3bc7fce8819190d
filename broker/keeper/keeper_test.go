package keeper

import (
	"errors"
	"testing"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/internal/vfs"
)

// A partition whose files cannot be removed is tried again when it is time. It used to wake the keeper, which then did
// nothing but fail, as fast as it could.
func TestTroubleWithADeletedPartitionWaits(t *testing.T) {
	disk := vfs.NewMem()
	l := begin(t, disk, false)
	disk.CrashAfter(1)
	l.keeper.Deleted([]machine.PartitionID{7})
	wakes := l.env.wakes
	if err := disk.MkdirAll("gone"); err == nil {
		if _, err := disk.Create("gone/x"); !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("the disk lives: %v", err)
		}
	}
	if err := l.keeper.Run(); err != nil {
		t.Fatal(err)
	}
	if l.env.trouble == nil || l.env.wakes != wakes {
		t.Errorf("trouble %v, woken %d times by it", l.env.trouble, l.env.wakes-wakes)
	}
	if _, gone, _ := l.keeper.take(); len(gone) != 1 || gone[0] != 7 {
		t.Errorf("left to be forgotten: %v", gone)
	}
}

package mutant

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"testing"
)

// TestNamesAreThoseInTheCode: the list is what mutant.On is called with anywhere in the module, no more and no less.
func TestNamesAreThoseInTheCode(t *testing.T) {
	call := regexp.MustCompile(`mutant\.On\("([^"]+)"\)`)
	var found []string
	root := os.DirFS("../..")
	for _, folder := range []string{"broker", "stream", "internal"} {
		err := fs.WalkDir(root, folder, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(name) != ".go" {
				return err
			}
			code, err := fs.ReadFile(root, name)
			for _, m := range call.FindAllSubmatch(code, -1) {
				found = append(found, string(m[1]))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	for _, name := range found {
		if !slices.Contains(Names, name) {
			t.Errorf("the code asks for %q, which Names lacks", name)
		}
	}
	for _, name := range Names {
		if !slices.Contains(found, name) {
			t.Errorf("nothing asks for %q", name)
		}
	}
	if !slices.IsSorted(Names) {
		t.Error("Names is not sorted")
	}
}

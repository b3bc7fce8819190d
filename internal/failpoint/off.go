//go:build !failpoints

package failpoint

import "errors"

// Hit does nothing in this build.
func Hit(string) {}

// Arm refuses: there is nothing to arm in this build.
func Arm(string) error { return errors.New("this program was built without the tag failpoints") }

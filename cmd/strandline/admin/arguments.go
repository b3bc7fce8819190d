package admin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// NoArgs refuses arguments, and shows how the command is used.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return misused(cmd, "the argument %q is one too many", args[0])
}

// someArgs refuses to do without the argument that cmd.Use names.
func someArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return misused(cmd, "no %s is named", argument(cmd))
}

func oneArg(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return misused(cmd, "one %s is wanted, the argument %q is one too many", argument(cmd), args[1])
	}
	return someArgs(cmd, args)
}

func argument(cmd *cobra.Command) string {
	_, word, _ := strings.Cut(cmd.Use, " ")
	return strings.TrimSuffix(word, "...")
}

func misused(cmd *cobra.Command, format string, args ...any) error {
	return fmt.Errorf("%s; usage: %s", fmt.Sprintf(format, args...), cmd.UseLine())
}

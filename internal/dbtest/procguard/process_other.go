//go:build !unix

package procguard

import (
	"errors"
	"os"
	"os/exec"
)

// NewSession does nothing: no server is started on these systems.
func NewSession(*exec.Cmd) {}

// Freeze is not supported.
func Freeze(*os.Process) error { return errors.ErrUnsupported }

// Thaw is not supported.
func Thaw(*os.Process) error { return errors.ErrUnsupported }

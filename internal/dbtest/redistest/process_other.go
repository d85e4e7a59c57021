//go:build !unix

package redistest

import (
	"errors"
	"os"
	"os/exec"
)

// No Redis server is started on these systems.
func newSession(*exec.Cmd)     {}
func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }

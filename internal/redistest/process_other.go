//go:build !unix

package redistest

import (
	"errors"
	"os"
	"os/exec"
)

// Elsewhere there is no Redis server to start.
func apart(*exec.Cmd)          {}
func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }

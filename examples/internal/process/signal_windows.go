package process

import (
	"errors"
	"os"
)

// Freeze cannot be had.
func Freeze(*os.Process) error { return errors.ErrUnsupported }

// Thaw cannot be had.
func Thaw(*os.Process) error { return errors.ErrUnsupported }

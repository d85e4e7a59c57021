package process

import (
	"errors"
	"os"
)

// Freeze is not supported.
func Freeze(*os.Process) error { return errors.ErrUnsupported }

// Thaw is not supported.
func Thaw(*os.Process) error { return errors.ErrUnsupported }

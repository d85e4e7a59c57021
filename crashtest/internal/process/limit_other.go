//go:build !linux

package process

import (
	"errors"
	"os"
)

// LimitFiles is not supported.
func LimitFiles(*os.Process, int64) error { return errors.ErrUnsupported }

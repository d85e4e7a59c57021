//go:build !linux

package process

import (
	"errors"
	"os"
)

// LimitFiles cannot be had.
func LimitFiles(*os.Process, int64) error { return errors.ErrUnsupported }

//go:build !linux

package main

import (
	"errors"
	"os"
)

func limitFiles(*os.Process, int64) error { return errors.ErrUnsupported }

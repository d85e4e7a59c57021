//go:build !unix

package overhead

import "time"

var started = time.Now() //nolint:gochecknoglobals // never written to

// processorTime is the time that has passed, where nothing better is known.
func processorTime() time.Duration { return time.Since(started) }

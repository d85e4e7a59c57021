//go:build !unix

package overhead

import "time"

var started = time.Now() //nolint:gochecknoglobals // never written to

// processorTime is the elapsed time, on systems without getrusage.
func processorTime() time.Duration { return time.Since(started) }

//go:build !unix

package resilientotel

import "time"

var started = time.Now()

// cpuTime returns the elapsed time, because there is no portable CPU time.
func cpuTime() time.Duration { return time.Since(started) }

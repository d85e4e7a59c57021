package circuit

import (
	"syscall"
	"time"
)

func realNow() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func realSince(d time.Duration) time.Duration { return realNow() - d }

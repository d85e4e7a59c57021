package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// LimitFiles limits the size of files that a process writes. A write beyond it fails with EFBIG. A
// negative size means no limit.
func LimitFiles(p *os.Process, size int64) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(p.Pid, unix.RLIMIT_FSIZE, nil, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if size >= 0 {
		limit.Cur = min(limit.Max, uint64(size))
	}
	return unix.Prlimit(p.Pid, unix.RLIMIT_FSIZE, &limit, nil)
}

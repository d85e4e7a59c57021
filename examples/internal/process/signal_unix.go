//go:build unix

package process

import (
	"os"
	"syscall"
)

// Freeze stops a process where it is.
func Freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Thaw lets it go on.
func Thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

//go:build unix

package process

import (
	"os"
	"syscall"
)

// Freeze suspends a process.
func Freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Thaw resumes a process.
func Thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

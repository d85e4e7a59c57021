//go:build unix

package procguard

import (
	"os"
	"os/exec"
	"syscall"
)

// NewSession makes a command run in a session of its own. An interrupt at the terminal
// then ends only this process, and the cleanup process stops the server.
func NewSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// Freeze suspends a process.
func Freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Thaw resumes a process.
func Thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

//go:build unix

package redistest

import (
	"os"
	"os/exec"
	"syscall"
)

// newSession makes a command run in a session of its own. An interrupt at the terminal
// then ends only this process, and the cleanup process stops the server.
func newSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

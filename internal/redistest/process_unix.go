//go:build unix

package redistest

import (
	"os"
	"os/exec"
	"syscall"
)

// apart takes a command out of reach of the terminal's signals: an interrupt ends us,
// and then the guard ends the server.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

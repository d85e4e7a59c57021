//go:build !unix

package postgrestest

import (
	"errors"
	"os/exec"
)

// account is for Unix: elsewhere no server is started, see binaries.
type account struct{}

func serverAccount() (account, error) { return account{}, errors.ErrUnsupported }
func (account) other() bool           { return false }
func (account) own(string) error      { return errors.ErrUnsupported }
func (account) prepare(*exec.Cmd)     {}

func kill(int) error { return errors.ErrUnsupported }

//go:build !unix

package postgrestest

import (
	"errors"
	"os/exec"
)

// account is used on Unix only: elsewhere binaries returns ErrNotInstalled.
type account struct{}

func serverAccount() (account, error) { return account{}, errors.ErrUnsupported }
func (account) other() bool           { return false }
func (account) own(string) error      { return errors.ErrUnsupported }
func (account) prepare(*exec.Cmd)     {}

func kill(int) error { return errors.ErrUnsupported }

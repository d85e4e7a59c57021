//go:build !unix

package postgrestest

import (
	"errors"
	"fmt"
	"os/exec"
)

// account is used on Unix only: elsewhere there is none.
type account struct{}

func serverAccount() (account, error) {
	return account{}, fmt.Errorf("%w (none is started on this system)", ErrNotInstalled)
}

func (account) other() bool       { return false }
func (account) own(string) error  { return errors.ErrUnsupported }
func (account) prepare(*exec.Cmd) {}

func kill(int) error { return errors.ErrUnsupported }

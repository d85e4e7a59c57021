//go:build unix

package postgrestest

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user that the server runs as.
type account struct {
	// credential is nil if the server runs as the user of this process.
	credential *syscall.Credential
}

// serverAccount returns the account for the server. PostgreSQL does not run as root, so root uses another account.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range [...]string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return account{}, errors.New("a PostgreSQL server does not run as root, and the users postgres and nobody do not exist")
}

// other reports whether the account differs from the user of this process, which is then root.
func (a account) other() bool { return a.credential != nil }

func (a account) own(dir string) error {
	if !a.other() {
		return nil
	}
	return os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid))
}

// prepare makes the command run as the account, in a session of its own. An interrupt at
// the terminal then ends only this process, and the cleanup process stops the server.
func (a account) prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: a.credential}
}

func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

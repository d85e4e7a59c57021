package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/config"
)

// reloader sets the policy of a running Transport from a file. Budget, limits and breaker are
// fixed at the first call, so the file may contain a Policy only.
type reloader struct {
	transport *resilienthttp.Transport
	standard  resilienthttp.Policy // of the program; the file changes some of its fields
	previous  resilienthttp.Policy // the one before the last change
	file      string
	text      []byte
}

// poll sets the policy of the file if its text is new. An invalid file changes nothing.
func (r *reloader) poll() error {
	text, err := os.ReadFile(r.file)
	if err != nil || bytes.Equal(text, r.text) {
		return err
	}
	r.text = text
	next := &resilienthttp.Transport{Policy: r.standard}
	if err := config.Read(bytes.NewReader(text), next); err != nil {
		return err
	}
	if next.Budget != nil || next.RateLimit != nil || next.Breaker != nil || next.Hedge != nil {
		return errors.New("only Policy can be changed without a restart")
	}
	before := r.transport.State().Policy
	if err := r.transport.SetPolicy(next.Policy); err != nil {
		return err
	}
	r.previous = before
	return nil
}

// rollBack sets the policy of before the last change.
func (r *reloader) rollBack() error { return r.transport.SetPolicy(r.previous) }

// A program calls poll every few seconds.
func Example_reload() {
	directory, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(directory) }()
	standard := resilienthttp.Policy{AttemptTimeout: 5 * time.Second}
	r := &reloader{
		transport: &resilienthttp.Transport{Policy: standard},
		standard:  standard, file: filepath.Join(directory, "client.json"),
	}
	for _, text := range []string{
		`{"Policy": {"MaxAttempts": 3}}`,
		`{"Policy": {"MaxAttempts": 3, "AttemptTimeout": "1"}}`,
		`{"Policy": {"MaxAttempts": 3, "AttemptTimeout": "1s"}}`,
	} {
		err := os.WriteFile(r.file, []byte(text), 0o600)
		if err == nil {
			err = r.poll()
		}
		inUse := r.transport.State().Policy
		fmt.Println(inUse.MaxAttempts, inUse.AttemptTimeout, err)
	}
	err = r.rollBack() // 1 s is too short for this API
	fmt.Println(r.transport.State().Policy.AttemptTimeout, err)
	// Output:
	// 3 5s <nil>
	// 3 5s config: Policy.AttemptTimeout: got "1", want duration string such as "5s"
	// 3 1s <nil>
	// 5s <nil>
}

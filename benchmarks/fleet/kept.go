package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Kept are results in a file, a line of JSON for each, so that a long series of
// runs can be broken off, and its plots be drawn anew. Nobody but who keeps them
// knows whether the code has changed since. A nil *Kept keeps nothing.
type Kept struct {
	mu      sync.Mutex
	file    *os.File
	results map[string]Result
	err     error // the first
}

// line is what the file holds.
type line struct {
	Run    string
	Result Result
}

// Keep opens the file, or makes it.
func Keep(name string) (*Kept, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // the caller's file
	if err != nil {
		return nil, err
	}
	k := &Kept{file: file, results: map[string]Result{}}
	for decoder := json.NewDecoder(file); ; {
		var l line
		switch err := decoder.Decode(&l); {
		case errors.Is(err, io.EOF):
			return k, nil
		case err != nil:
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
		}
		k.results[l.Run] = l.Result
	}
}

// Close closes the file, and returns the first error that there was.
func (k *Kept) Close() error {
	if k == nil {
		return nil
	}
	return errors.Join(k.err, k.file.Close())
}

// key tells runs apart.
func key(c Config) string {
	return fmt.Sprintf("%s, %v, seed %d", c, c.Scenario.Length(), c.Seed)
}

// Get returns what is kept of the run.
func (k *Kept) Get(c Config) (Result, bool) {
	if k == nil {
		return Result{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.results[key(c)]
	r.Config = c
	return r, ok
}

func (k *Kept) put(r Result) {
	if k == nil {
		return
	}
	text, err := json.Marshal(line{Run: key(r.Config), Result: r})
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		_, err = k.file.Write(append(text, '\n'))
	}
	if k.err == nil {
		k.err = err
	}
}

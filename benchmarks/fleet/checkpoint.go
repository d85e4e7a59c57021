package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Checkpoint stores results in a file, one line of JSON each. An interrupted series of runs
// continues from its checkpoint. It does not detect a change of the code. A nil *Checkpoint
// stores nothing. It is safe for concurrent use.
type Checkpoint struct {
	mu      sync.Mutex
	file    *os.File
	results map[string]Result
	err     error // the first
}

// checkpointRecord is a line of the file.
type checkpointRecord struct {
	Run    string
	Result Result
}

// OpenCheckpoint opens or creates the file.
func OpenCheckpoint(name string) (*Checkpoint, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // the caller's file
	if err != nil {
		return nil, err
	}
	k := &Checkpoint{file: file, results: map[string]Result{}}
	for decoder := json.NewDecoder(file); ; {
		var l checkpointRecord
		switch err := decoder.Decode(&l); {
		case errors.Is(err, io.EOF):
			return k, nil
		case err != nil:
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
		}
		k.results[l.Run] = l.Result
	}
}

// Close closes the file and returns the first error of a write.
func (k *Checkpoint) Close() error {
	if k == nil {
		return nil
	}
	return errors.Join(k.err, k.file.Close())
}

// key identifies a run.
func key(c Config) string {
	return fmt.Sprintf("%s, %v, seed %d", c, c.Scenario.Length(), c.Seed)
}

// Get returns the stored result of the run.
func (k *Checkpoint) Get(c Config) (Result, bool) {
	if k == nil {
		return Result{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.results[key(c)]
	r.Config = c
	return r, ok
}

func (k *Checkpoint) add(r Result) {
	if k == nil {
		return
	}
	text, err := json.Marshal(checkpointRecord{Run: key(r.Config), Result: r})
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		_, err = k.file.Write(append(text, '\n'))
	}
	if k.err == nil {
		k.err = err
	}
}

package fleet

import (
	_ "embed" // peers.json
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

//go:embed peers.json
var measuredPeers []byte

// PeerResults holds the stored results of other libraries in the scenarios and in random
// compositions. Results of a scenario that has changed since are ignored.
type PeerResults struct {
	Runs    map[string]PeerResult // by scenario, topology and library
	Tallies map[string]Tally      // by library
}

// PeerResult is the result of a library in a scenario.
type PeerResult struct {
	Model   string // the scenario's fingerprint
	Success float64
	Shown   float64 // the value in scenarios.md
}

// ReadPeerResults returns the results in peers.json.
func ReadPeerResults() (PeerResults, error) { return parsed(measuredPeers) }

func parsed(text []byte) (PeerResults, error) {
	b := PeerResults{Runs: map[string]PeerResult{}, Tallies: map[string]Tally{}}
	err := json.Unmarshal(text, &b)
	return b, err
}

// StorePeerResults adds the results of other libraries to peers.json below the root.
func StorePeerResults(root string, rows *Rows, tallies []Tally) error {
	name := filepath.Join(root, "benchmarks", "fleet", "peers.json")
	old, err := os.ReadFile(name) //nolint:gosec // a source file
	if err != nil {
		return err
	}
	b, err := parsed(old)
	if err != nil {
		return err
	}
	b.add(rows, tallies)
	text, err := json.MarshalIndent(b, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644) //nolint:gosec // a source file
}

// add adds the rows of the libraries that this library is compared with.
func (b PeerResults) add(rows *Rows, tallies []Tally) {
	for _, t := range tallies {
		if slices.Contains(peers.Defaults(), t.Peer) {
			b.Tallies[t.Peer] = t
		}
	}
	for _, row := range rows.all {
		if slices.Contains(peers.Defaults(), row[0].Peer.Name) {
			b.Runs[row[0].String()] = PeerResult{Model: row[0].Scenario.fingerprint(), Success: success(row), Shown: shown(row)}
		}
	}
}

// best returns the library with the maximum success in the scenario and topology; name is
// empty if there is none.
func (b PeerResults) best(c Config) (name string, best PeerResult) {
	for _, peer := range peers.Defaults() {
		c.Peer.Name = peer
		h, ok := b.Runs[c.String()]
		if ok && h.Model == c.Scenario.fingerprint() && (name == "" || h.Success > best.Success) {
			name, best = peer, h
		}
	}
	return name, best
}

// fingerprint identifies the model of a scenario. It ignores zero fields, so that a new
// field changes only the scenarios that set it.
func (s Scenario) fingerprint() string {
	s.Targets, s.Configure = nil, nil
	s.Note, s.Reason, s.Row, s.group = "", "", 0, ""
	hash := fnv.New64a()
	describe(hash, reflect.ValueOf(s))
	return fmt.Sprintf("%016x", hash.Sum64())
}

func describe(w io.Writer, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for field, value := range v.Fields() {
			if !value.IsZero() {
				_, _ = io.WriteString(w, field.Name+":")
				describe(w, value)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			describe(w, v.Index(i))
		}
	default:
		_, _ = fmt.Fprint(w, v.Interface())
	}
	_, _ = io.WriteString(w, ";")
}

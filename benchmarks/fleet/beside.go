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

// Beside is what other libraries had in the scenarios and in the random
// compositions, when all was run: this one is held beside it whenever it is run. It
// knows only what was measured in a scenario as it is now.
type Beside struct {
	Runs    map[string]Had   // by scenario, topology and library
	Tallies map[string]Tally // by library
}

// Had is what a library had in a scenario.
type Had struct {
	Model   string // the scenario's fingerprint
	Success float64
	Shown   float64 // what the plot shows
}

// ReadBeside returns what was measured when this was built.
func ReadBeside() (Beside, error) { return parsed(measuredPeers) }

func parsed(text []byte) (Beside, error) {
	b := Beside{Runs: map[string]Had{}, Tallies: map[string]Tally{}}
	err := json.Unmarshal(text, &b)
	return b, err
}

// Remember adds what other libraries have in these rows and trials to what is kept,
// in the repository that has the docs.
func Remember(docs string, rows *Rows, tallies []Tally) error {
	name := filepath.Join(docs, "..", "benchmarks", "fleet", "peers.json")
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
	return os.WriteFile(name, append(text, '\n'), 0o644) //nolint:gosec // likewise
}

// add adds the rows of the libraries that are held beside this one.
func (b Beside) add(rows *Rows, tallies []Tally) {
	for _, t := range tallies {
		if slices.Contains(peers.Defaults(), t.Peer) {
			b.Tallies[t.Peer] = t
		}
	}
	for _, key := range rows.keys {
		row := rows.results[key]
		if slices.Contains(peers.Defaults(), row[0].Peer.Name) {
			b.Runs[key] = Had{Model: row[0].Scenario.fingerprint(), Success: success(row), Shown: shown(row)}
		}
	}
}

// best is the library with the greatest success in the row's scenario and topology,
// if there is any.
func (b Beside) best(c Config) (name string, had Had) {
	for _, peer := range peers.Defaults() {
		c.Peer.Name = peer
		h, ok := b.Runs[c.String()]
		if ok && h.Model == c.Scenario.fingerprint() && (name == "" || h.Success > had.Success) {
			name, had = peer, h
		}
	}
	return name, had
}

// fingerprint tells whether a scenario is the one that it was. Fields that are zero do
// not count, so that a new field changes no scenario that does not use it.
func (s Scenario) fingerprint() string {
	s.Goals, s.Configure, s.Note, s.Why, s.Row = nil, nil, "", "", 0
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

package fleet

import (
	_ "embed" // peers.json
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
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

// ReadBeside returns what was measured last.
func ReadBeside() (Beside, error) {
	b := Beside{Runs: map[string]Had{}, Tallies: map[string]Tally{}}
	err := json.Unmarshal(measuredPeers, &b)
	return b, err
}

// Write writes it where it is read from, in the repository that has the docs.
func (b Beside) Write(docs string) error {
	text, err := json.MarshalIndent(b, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "..", "benchmarks", "fleet", "peers.json"), append(text, '\n'), 0o644) //nolint:gosec // a source file
}

// Remember adds the rows of the libraries that are held beside this one.
func (b Beside) Remember(rows *Rows, tallies []Tally) {
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

// fingerprint tells whether a scenario is the one that it was.
func (s Scenario) fingerprint() string {
	s.Goals, s.Configure, s.Note, s.Row = nil, nil, "", 0
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%+v", s)
	return fmt.Sprintf("%016x", hash.Sum64())
}

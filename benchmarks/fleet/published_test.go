package fleet

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// atOnce is the client of the models: it repeats a failed attempt at once.
type atOnce struct {
	base     http.RoundTripper
	attempts int
}

func (c atOnce) Do(req *http.Request) (resp *http.Response, err error) {
	for range c.attempts {
		resp, err = c.base.RoundTrip(req)
		if err == nil && resp.StatusCode < http.StatusBadRequest {
			break
		}
	}
	return resp, err
}

// The client of each model has the published success in this simulator.
func TestPublished_clientsOfTheModels(t *testing.T) {
	for _, m := range models() {
		if m.published == nil {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			seeds := uint64(20)
			if m.load.perSecond() == Rate {
				seeds = 1 // ten thousand calls
			}
			var row Row
			own := peers.Peer{Name: "model", New: func(s peers.Setting) peers.Client { return atOnce{s.Base, m.attempts} }}
			for seed := range seeds {
				row = append(row, Run(t, Config{Scenario: m.scenario(1), Peer: own, Topology: Shared, Seed: Seed + seed}))
			}
			for i, got := range phasesOf(row) {
				t.Logf("phase %d: published %.3f, measured %.3f", i+1, m.published[i], got)
				if m.published[i] != unknown {
					require.InDelta(t, m.published[i], got, 0.15)
				}
			}
		})
	}
}

func TestPhases(t *testing.T) {
	m := model{before: 1, during: 2, after: 10, later: []time.Duration{7}}
	require.Equal(t, []phase{{0, 1}, {1, 3}, {3, 7}, {7, 13}}, m.phases())
	require.Equal(t, []phase{{0, 2}}, model{during: 2}.phases())
}

package zoo

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

//go:embed testdata/gate.txt
var gateList string

// gate returns the draws of the gate.
func gate(t *testing.T) (draws []Draw) {
	t.Helper()
	for line := range strings.Lines(gateList) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var seed uint64
		var number int
		_, err := fmt.Sscan(line, &seed, &number)
		require.NoError(t, err, line)
		d := New(seed, number)
		require.Equal(t, fmt.Sprintf("%d %d %s", seed, number, d.Family()), strings.TrimSpace(line), "the draws have changed: choose new ones")
		draws = append(draws, d)
	}
	return draws
}

func library(t *testing.T, name string) peers.Peer {
	t.Helper()
	found, err := peers.Named(name)
	require.NoError(t, err)
	return found[0]
}

// This library keeps all criteria in the draws of the gate, which are of all families. The client's jitter is not seeded: a draw
// must miss a criterion twice to fail. The oracle is never rejected and keeps all criteria: they can be kept. It and a bare client
// have the same figures in each run.
func TestGate(t *testing.T) {
	if testing.Short() {
		t.Skip("a hundred runs")
	}
	ours := library(t, peers.Ours)
	families := map[string]bool{}
	for _, trial := range Try(t, gate(t), ours, func(Trial) {}) {
		families[trial.Family()] = true
		ofOracle := trial
		ofOracle.Ours = trial.Oracle
		require.Empty(t, ofOracle.Judge(), "%s", ofOracle.Line())
		require.Zero(t, trial.Oracle.Rejected, "%v", trial.Draw)
		if trial.Number%4 == 0 {
			require.Equal(t, trial.Bare, trial.bare(t), "%v", trial.Draw)
			require.Equal(t, trial.Oracle, trial.oracle(t), "%v", trial.Draw)
		}
		if len(trial.Judge()) == 0 {
			continue
		}
		if again := trial.Draw.Try(t, ours); len(again.Judge()) > 0 {
			t.Error(trial.Line())
			t.Error(again.Line())
		}
	}
	require.Len(t, families, 4*len(allSays())*len(loads())+3*len(loads()), "of four kinds, and of limiter.Concurrency, which can say three things")
}

// brokenClient is a client that is wrong in one way.
type brokenClient struct {
	base     http.RoundTripper
	attempts int // one after another, without a wait; 0: it sends nothing
}

func (b brokenClient) Do(req *http.Request) (resp *http.Response, err error) {
	err = http.ErrHandlerTimeout
	for range b.attempts {
		if resp, err = b.base.RoundTrip(req); err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
	}
	return resp, err
}

// Each criterion is missed by a client that is wrong in that way, and kept by this library.
func TestJudge_findsBrokenClients(t *testing.T) {
	broken := func(attempts int) peers.Peer {
		return peers.Peer{New: func(s peers.Setting) peers.Client { return brokenClient{s.Base, attempts} }}
	}
	all := tenWindows(func(d *Draw) {
		d.Status = http.StatusTooManyRequests
		d.Load.Workers, d.Load.Service, d.Load.Think = 10, 50*time.Millisecond, 1950*time.Millisecond
		d.Load.Rate = d.Load.offered() // 300 calls a window for a quota of 100
	})
	rejections, nothing := all, all
	rejections.Says = SaysRejections
	nothing.Says, nothing.Dialect, nothing.Wait = SaysNothing, "", WaitNone
	for _, row := range []struct {
		name   string
		draw   Draw
		client peers.Peer
		want   []Criterion
	}{
		{"this library, all responses tell", all, library(t, peers.Ours), nil},
		{"this library, rejections tell", rejections, library(t, peers.Ours), nil},
		{"this library, nothing tells", nothing, library(t, peers.Ours), nil},
		{"it never sends", all, broken(0), []Criterion{AboveBare, NearOracle}},
		{"it never waits, all responses tell", all, broken(1), []Criterion{FewWhereAllTell}},
		{"it never waits, rejections tell", rejections, broken(1), []Criterion{FewWhereRejectionsTell}},
		{"it never waits, nothing tells", nothing, broken(1), nil},
		{"it makes five attempts at once, nothing tells", nothing, broken(5), []Criterion{FewBesideBare}},
	} {
		t.Run(row.name, func(t *testing.T) {
			trial := row.draw.Try(t, row.client)
			for range 2 { // the client's jitter is not seeded: as in the gate, it must miss again and again
				if len(trial.Judge()) > len(row.want) {
					trial = row.draw.Try(t, row.client)
				}
			}
			var got []Criterion
			for _, m := range trial.Judge() {
				got = append(got, m.Criterion)
			}
			require.Equal(t, row.want, got, "%s", trial.Line())
		})
	}
}

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func TestCheck(t *testing.T) {
	all := options{scenario: "all", topology: "both"}
	for name, tt := range map[string]struct {
		change func(*options)
		err    string
	}{
		"the scoreboard: fine":               {func(*options) {}, ""},
		"all is written: fine":               {func(o *options) { o.write = true }, ""},
		"all at the gates is written: fine":  {func(o *options) { o.write, o.scenario = true, "gates" }, ""},
		"a group is written: not all runs":   {func(o *options) { o.write, o.group = true, "small" }, "all runs"},
		"a topology is written: not all":     {func(o *options) { o.write, o.topology = true, "own" }, "all runs"},
		"shorter runs are written: not all":  {func(o *options) { o.write, o.seconds = true, 5 }, "all runs"},
		"a group and a scenario: which one?": {func(o *options) { o.group, o.scenario = "small", "7" }, "exclude"},
	} {
		t.Run(name, func(t *testing.T) {
			o := all
			tt.change(&o)
			if tt.err == "" {
				require.NoError(t, o.check())
			} else {
				require.ErrorContains(t, o.check(), tt.err)
			}
		})
	}
}

// TestSeedsOf: one, or three of this library and a bare client for the page.
func TestSeedsOf(t *testing.T) {
	seeds := func(o options, peer string) int {
		return o.seedsOf(fleet.Config{Peer: peers.Peer{Name: peer}})
	}
	o := options{scenario: "all", topology: "both"}
	require.Equal(t, 1, seeds(o, peers.Ours))
	o.write = true
	require.Equal(t, 3, seeds(o, peers.Ours))
	require.Equal(t, 3, seeds(o, "bare"))
	require.Equal(t, 1, seeds(o, "azcore"))
	o.seeds = 2
	require.Equal(t, 2, seeds(o, "azcore"))
}

// TestRuns_ofGroups: theirs and no others.
func TestRuns_ofGroups(t *testing.T) {
	o := options{scenario: "all", topology: "both", group: "ports"}
	runs, err := o.runs()
	require.NoError(t, err)
	require.Len(t, runs, 2*3, "a bare client and this library")
	o.group = "no such"
	_, err = o.runs()
	require.Error(t, err)
}

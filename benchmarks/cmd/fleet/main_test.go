package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func TestOptions_check(t *testing.T) {
	all := options{scenario: "all", topology: "both", zooDraw: -1, only: -1}
	for name, tt := range map[string]struct {
		change func(*options)
		err    string
	}{
		"no flags: accepted":              {func(*options) {}, ""},
		"-write of all runs: accepted":    {func(o *options) { o.write = true }, ""},
		"-write of all gates: accepted":   {func(o *options) { o.write, o.scenario = true, "gates" }, ""},
		"-write of a group: rejected":     {func(o *options) { o.write, o.group = true, "small" }, "all runs"},
		"-write of a topology: rejected":  {func(o *options) { o.write, o.topology = true, "own" }, "all runs"},
		"-group and -scenario: rejected":  {func(o *options) { o.group, o.scenario = "small", "7" }, "not both"},
		"-zoo and -zoo-draw: rejected":    {func(o *options) { o.zoo, o.zooDraw = 10, 7 }, "not both"},
		"-config: accepted":               {func(o *options) { o.config = `{"Policy": {"MaxAttempts": 3}}` }, ""},
		"-config of a field: rejected":    {func(o *options) { o.config = `{"Policy": {"Attempts": 3}}` }, "Attempts"},
		"-config and -write: rejected":    {func(o *options) { o.config, o.write = `{}`, true }, "all runs"},
		"-config and -remember: rejected": {func(o *options) { o.config, o.remember = `{}`, true }, "without -remember"},
		"-config and -zoo: rejected":      {func(o *options) { o.config, o.zoo = `{}`, 10 }, "for scenarios"},
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

// The configuration of -config reaches the Transport after the scenario's own.
func TestOptions_config(t *testing.T) {
	o := options{scenario: "outage", topology: "own", peer: peers.Ours, config: `{"Policy": {"MaxAttempts": 3}}`}
	runs, err := o.runs()
	require.NoError(t, err)
	require.Len(t, runs, 1)
	var transport resilienthttp.Transport
	runs[0].Scenario.With(func(tr *resilienthttp.Transport) { tr.OwnsRetries = tr.Policy.MaxAttempts == 3 }).Configure(&transport)
	require.Equal(t, 3, transport.Policy.MaxAttempts)
	require.True(t, transport.OwnsRetries, "own configuration first")
}

func TestOptions_seedsOf(t *testing.T) {
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

func TestOptions_runsOfGroups(t *testing.T) {
	o := options{scenario: "all", topology: "both", group: "ports"}
	runs, err := o.runs()
	require.NoError(t, err)
	require.Len(t, runs, 2*3, "a bare client and this library")
	o.group = "unknown"
	_, err = o.runs()
	require.Error(t, err)
}

// Twice the expected misses fail the gate, unless chance explains so many of them.
func TestMostMisses(t *testing.T) {
	require.Equal(t, 156, mostMisses(600, 0.13))
	require.Equal(t, 18, mostMisses(60, 0.13), "7.8 are expected, and the standard deviation is 2.6")
	require.Equal(t, 7, mostMisses(60, 0.03), "1.8 are expected, and the standard deviation is 1.3")
}

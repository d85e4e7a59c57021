package main

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
	"github.com/resilienthttp/resilienthttp/benchmarks/zoo"
)

// runZoo runs drawn rate limiters with each library in -peer.
func (o options) runZoo(t *testing.T) error {
	if o.peer == "" {
		o.peer = peers.Ours
	}
	libraries, err := fleet.Scenario{}.Peers(o.peer)
	if err != nil {
		return err
	}
	first, n := 0, o.zoo
	if o.zooDraw >= 0 {
		first, n = o.zooDraw, 1
	}
	for _, library := range libraries {
		if len(libraries) > 1 {
			say(library.Name + ":")
		}
		trials := zoo.Trials(t, o.seed, first, n, library, func(trial zoo.Trial) {
			if o.zooDraw >= 0 || len(trial.Judge()) > 0 {
				say(trial.Line())
			}
		})
		say(zoo.Summarize(trials))
	}
	return nil
}

package main

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
	"github.com/resilienthttp/resilienthttp/benchmarks/zoo"
)

// The ratios of draws that this library misses, each measured on 600 draws: limiters of the zoo that miss
// a criterion, and random compositions that are harmed. The gate compares fresh draws with twice these.
const (
	zooMissed    = 0.137
	randomHarmed = 0.047
)

// runGate runs fresh draws of both boards with this library. It prints a line that repeats each miss.
func (o options) runGate(t *testing.T) error {
	ours, err := peers.Named(peers.Ours)
	if err != nil {
		return err
	}
	missed, harmed := 0, 0
	zoo.Trials(t, o.seed, 0, o.gate, ours[0], func(trial zoo.Trial) {
		if len(trial.Judge()) > 0 {
			missed++
			say(trial.Line())
		}
	})
	fleet.Random(t, o.seed, o.gate, ours, func(trial fleet.Trial) {
		for _, line := range trial.Harmed() {
			harmed++
			say(o.repeats(trial, line))
		}
	})
	say(fmt.Sprintf("%d draws of each board: %d limiters missed, at most %d; %d compositions harmed, at most %d",
		o.gate, missed, mostMisses(o.gate, zooMissed), harmed, mostMisses(o.gate, randomHarmed)))
	if missed > mostMisses(o.gate, zooMissed) || harmed > mostMisses(o.gate, randomHarmed) {
		return errors.New("fleet: -gate: more than twice as many misses as the draws of the last measurement had")
	}
	return nil
}

// mostMisses is twice the expected number of misses of n draws, or four standard deviations above it: few
// misses are expected of 60 compositions, and twice as many of them are often chance.
func mostMisses(n int, rate float64) int {
	expected := float64(n) * rate
	return int(max(2*expected, expected+4*math.Sqrt(expected*(1-rate))))
}

// repeats prefixes the line of a composition with the flags that repeat it.
func (o options) repeats(trial fleet.Trial, line string) string {
	return fmt.Sprintf("-seed %d -random-only %d: %s", o.seed, trial.Number, line)
}

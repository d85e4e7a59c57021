package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
)

// message is a line from the child: how much is done, or the result.
type message struct {
	Progress float64 `json:"progress,omitempty"`
	Report   *Report `json:"report,omitempty"`
}

// Child makes the runs of a [Spec.Query], and writes messages to out.
func Child(t *testing.T, query string, out io.Writer) error {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("lab: read the experiment: %w", err)
	}
	s, err := Parse(values)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	return encoder.Encode(message{Report: s.run(t, func(done float64) { _ = encoder.Encode(message{Progress: done}) })})
}

// run makes the runs, and calls progress with the ratio that is done, each hundredth.
func (s *Spec) run(t *testing.T, progress func(float64)) *Report {
	t.Helper()
	runs, labels := s.runs()
	p := &progressMeter{done: make([]float64, len(runs)), report: progress}
	watches := make([]*watch, len(runs))
	for i := range runs {
		watches[i] = &watch{ended: map[string]int{}, latencies: make([][]time.Duration, s.seconds())}
		runs[i].Watch = func(o fleet.Observation) {
			watches[i].note(o)
			p.note(i, o.At.Seconds()/s.full.Seconds())
		}
	}
	r := &Report{Seconds: s.seconds()}
	if s.failure != failNone {
		r.Band = [2]float64{s.start.Seconds(), (s.start + s.length).Seconds()}
	}
	for i, result := range fleet.RunAll(t, runs, func(fleet.Result) {}) {
		r.Runs = append(r.Runs, newRun(labels[i], &result, watches[i]))
	}
	return r
}

// seconds are the seconds in which calls arrive.
func (s *Spec) seconds() int { return int((s.full + time.Second - 1) / time.Second) }

// progressMeter adds up the progress of runs that are made at the same time.
type progressMeter struct {
	mu       sync.Mutex
	done     []float64 // of each run
	reported float64
	report   func(float64)
}

func (p *progressMeter) note(run int, done float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if done <= p.done[run] {
		return
	}
	p.done[run] = done
	sum := 0.0
	for _, d := range p.done {
		sum += d / float64(len(p.done))
	}
	if sum-p.reported >= 0.01 {
		p.reported = sum
		p.report(sum)
	}
}

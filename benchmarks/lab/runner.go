package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
)

// errBusy means that another run is in progress.
var errBusy = errors.New("another run is in progress: one at a time")

const (
	// patience is how long a run waits for the end of one that its browser has left.
	patience = 3 * time.Second

	// maxStderr is the part of a child's error output that is shown: a panic is at its beginning.
	maxStderr = 2 << 10
)

// runner makes one run at a time, in a child process.
type runner struct {
	command func(context.Context) *exec.Cmd
	slot    chan struct{}

	patience time.Duration // for the slot
}

func newRunner(command func(context.Context) *exec.Cmd) *runner {
	return &runner{command: command, slot: make(chan struct{}, 1), patience: patience}
}

// acquire waits a moment for the end of another run.
func (r *runner) acquire(ctx context.Context) error {
	select {
	case r.slot <- struct{}{}:
		return nil
	case <-time.After(r.patience):
		return errBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *runner) release() { <-r.slot }

// run makes a run. It kills the child when the context ends.
func (r *runner) run(ctx context.Context, s *Spec, progress func(float64)) (*Report, error) {
	cmd := r.command(ctx)
	errOutput := &head{}
	cmd.Stderr, cmd.WaitDelay = errOutput, 2*time.Second
	in, err := cmd.StdinPipe() // it stays open: a child reads its end if the parent has died, and exits
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("lab: start the run: %w", err)
	}
	_, _ = io.WriteString(in, s.Query()+"\n") // if it fails, the child has exited
	report, other := read(out, progress)
	switch err := cmd.Wait(); {
	case err != nil:
		return nil, fmt.Errorf("the run ended: %w\n%s", err, strings.TrimSpace(errOutput.text()+"\n"+other.text()))
	case report == nil:
		return nil, errors.New("the run ended without a result")
	}
	return report, nil
}

// read reads the child's messages until the end, and keeps the lines that package testing writes
// if a bubble fails.
func read(out io.Reader, progress func(float64)) (report *Report, other *head) {
	other = &head{}
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		var m message
		switch {
		case json.Unmarshal(line, &m) != nil:
			_, _ = other.Write(line)
		case m.Report != nil:
			report = m.Report
		default:
			progress(m.Progress)
		}
		if err != nil {
			return report, other
		}
	}
}

// head keeps the first bytes.
type head struct{ kept bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), maxStderr-min(h.kept.Len(), maxStderr))])
	return len(p), nil
}

// text returns the message without the stacks of goroutines.
func (h *head) text() string {
	text, _, _ := strings.Cut(h.kept.String(), "\n\ngoroutine ")
	return strings.TrimSpace(text)
}

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
	s, errs := Parse(values)
	if errs != nil {
		return errs
	}
	encoder := json.NewEncoder(out)
	return encoder.Encode(message{Report: s.run(t, func(done float64) { _ = encoder.Encode(message{Progress: done}) })})
}

// run makes the runs, and calls progress with the ratio that is done, each hundredth.
func (s *Spec) run(t *testing.T, progress func(float64)) *Report {
	t.Helper()
	runs, labels := s.runs()
	watches, total := make([]*watch, len(runs)), s.calls()*float64(len(runs))
	var mu sync.Mutex
	ended, hundredths := 0, 0
	count := func() {
		mu.Lock()
		defer mu.Unlock()
		ended++
		if done := int(100 * float64(ended) / total); done > hundredths && done <= 100 {
			hundredths = done
			progress(float64(done) / 100)
		}
	}
	for i := range runs {
		watches[i] = &watch{ended: map[string]int{}, latencies: make([][]time.Duration, s.seconds())}
		runs[i].Watch = func(o fleet.Observation) {
			watches[i].note(o)
			count()
		}
	}
	r := &Report{Seconds: s.seconds()}
	if s.failure != failNone {
		r.Band = [2]float64{s.start.Seconds(), (s.start + s.length).Seconds()}
	}
	for i, result := range fleet.RunAll(t, runs, func(fleet.Result) {}) {
		r.Runs = append(r.Runs, newRun(labels[i], result, watches[i]))
	}
	return r
}

// seconds are the seconds in which calls arrive.
func (s *Spec) seconds() int { return int((s.full + time.Second - 1) / time.Second) }

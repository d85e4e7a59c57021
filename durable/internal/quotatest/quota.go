// Package quotatest has a provider with a quota, for tests of package durable and its stores.
package quotatest

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// Quota is a provider that permits Limit sends in each Window. It answers 429 to the others, with the
// time at which it permits the next.
type Quota struct {
	Limit  int
	Window time.Duration
	Takes  time.Duration // of a send; the decision is in its middle
	Evenly bool          // the quota fills up evenly, and not at the begin of each window

	mu       sync.Mutex
	began    time.Time
	filled   time.Time // when it had these tokens
	tokens   float64
	inFlight int
	done     map[string]bool
	report   Report
}

// Report is what a Quota has counted.
type Report struct {
	InFlight int   // sends at the first 429
	Rejected []int // by window
	Twice    int   // sends of an intent that was done
	Took     time.Duration
}

// Run sends many intents of one scope through an Engine on each of the stores, which share their
// intents. The Engines have the defaults.
func (q *Quota) Run(t *testing.T, many int, stores ...durable.Store) Report {
	t.Helper()
	q.done = make(map[string]bool, many)
	engines := make([]*durable.Engine, len(stores))
	for i, store := range stores {
		engines[i] = &durable.Engine{Store: store, Gateways: map[string]durable.Gateway{"psp": q}}
	}
	intents := make([]durable.Intent, many)
	for i := range intents {
		intents[i] = durable.Intent{ID: idempotency.ID{Scope: "a", Operation: "charge", Key: strconv.Itoa(i)}, Gateway: "psp"}
	}
	if _, err := engines[0].EnqueueBatch(t.Context(), intents); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, e := range engines {
		running.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for left := true; left; {
		_ = sleep.Context(ctx, time.Second)
		q.mu.Lock()
		left = len(q.done) < many
		q.mu.Unlock()
	}
	cancel()
	running.Wait()
	t.Logf("in flight %d, rejected %v, done after %v", q.report.InFlight, q.report.Rejected, q.report.Took)
	return q.report
}

// Send implements durable.Gateway.
func (q *Quota) Send(ctx context.Context, s *durable.Send) durable.Outcome {
	q.mu.Lock()
	q.inFlight++
	q.mu.Unlock()
	_ = sleep.Context(ctx, q.Takes/2)
	outcome := q.decide(s.ID.Key)
	_ = sleep.Context(ctx, q.Takes/2)
	q.mu.Lock()
	q.inFlight--
	q.mu.Unlock()
	return outcome
}

func (q *Quota) decide(key string) durable.Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.began.IsZero() {
		q.began, q.filled, q.tokens = now, now, float64(q.Limit)
	}
	window := int(now.Sub(q.began) / q.Window)
	again := q.fill(now, window)
	if q.tokens >= 1 {
		q.tokens--
		if q.done[key] {
			q.report.Twice++
		}
		q.done[key] = true
		q.report.Took = now.Sub(q.began)
		return durable.Outcome{Class: durable.ClassSucceeded}
	}
	if q.report.InFlight == 0 {
		q.report.InFlight = q.inFlight
	}
	q.report.Rejected[window]++
	return durable.Outcome{Class: durable.ClassFailed, Status: http.StatusTooManyRequests, NotBefore: again}
}

// fill fills up the quota, and returns the time of the next token in whole seconds from now, as a
// Retry-After has it.
func (q *Quota) fill(now time.Time, window int) time.Time {
	again := q.began.Add(time.Duration(window+1) * q.Window)
	for len(q.report.Rejected) <= window {
		q.report.Rejected = append(q.report.Rejected, 0)
		if !q.Evenly {
			q.tokens = float64(q.Limit)
		}
	}
	if q.Evenly {
		rate := float64(q.Limit) / q.Window.Seconds()
		q.tokens = min(q.tokens+now.Sub(q.filled).Seconds()*rate, float64(q.Limit))
		q.filled = now
		again = now.Add(time.Duration((1 - q.tokens) / rate * float64(time.Second)))
	}
	return now.Add((again.Sub(now) + time.Second - 1).Truncate(time.Second))
}

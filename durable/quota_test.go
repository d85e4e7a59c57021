package durable_test

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

// quota is a provider that permits limit sends in each window. It answers 429 to the others, with the
// time at which it permits the next.
type quota struct {
	limit  int
	window time.Duration
	takes  time.Duration // of a send; the decision is in its middle
	evenly bool          // the quota fills up evenly, and not at the begin of each window

	mu       sync.Mutex
	began    time.Time
	filled   time.Time // when it had these tokens
	tokens   float64
	inFlight int
	done     map[string]bool
	counted  report
}

// report is what a quota has counted.
type report struct {
	inFlight int   // sends at the first 429
	rejected []int // by window
	twice    int   // sends of an intent that was done
	took     time.Duration
}

// run sends many intents of one scope through an Engine on each of the stores, which share their
// intents. The Engines have the defaults.
func (q *quota) run(t *testing.T, many int, stores ...durable.Store) report {
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
	t.Logf("in flight %d, rejected %v, done after %v", q.counted.inFlight, q.counted.rejected, q.counted.took)
	return q.counted
}

// Send implements durable.Gateway.
func (q *quota) Send(ctx context.Context, s *durable.Send) durable.Outcome {
	q.mu.Lock()
	q.inFlight++
	q.mu.Unlock()
	_ = sleep.Context(ctx, q.takes/2)
	outcome := q.decide(s.ID.Key)
	_ = sleep.Context(ctx, q.takes/2)
	q.mu.Lock()
	q.inFlight--
	q.mu.Unlock()
	return outcome
}

func (q *quota) decide(key string) durable.Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.began.IsZero() {
		q.began, q.filled, q.tokens = now, now, float64(q.limit)
	}
	window := int(now.Sub(q.began) / q.window)
	again := q.fill(now, window)
	if q.tokens >= 1 {
		q.tokens--
		if q.done[key] {
			q.counted.twice++
		}
		q.done[key] = true
		q.counted.took = now.Sub(q.began)
		return durable.Outcome{Class: durable.ClassSucceeded}
	}
	if q.counted.inFlight == 0 {
		q.counted.inFlight = q.inFlight
	}
	q.counted.rejected[window]++
	return durable.Outcome{Class: durable.ClassFailed, Status: http.StatusTooManyRequests, NotBefore: again}
}

// fill fills up the quota, and returns the time of the next token in whole seconds from now, as a
// Retry-After has it.
func (q *quota) fill(now time.Time, window int) time.Time {
	again := q.began.Add(time.Duration(window+1) * q.window)
	for len(q.counted.rejected) <= window {
		q.counted.rejected = append(q.counted.rejected, 0)
		if !q.evenly {
			q.tokens = float64(q.limit)
		}
	}
	if q.evenly {
		rate := float64(q.limit) / q.window.Seconds()
		q.tokens = min(q.tokens+now.Sub(q.filled).Seconds()*rate, float64(q.limit))
		q.filled = now
		again = now.Add(time.Duration((1 - q.tokens) / rate * float64(time.Second)))
	}
	return now.Add((again.Sub(now) + time.Second - 1).Truncate(time.Second))
}

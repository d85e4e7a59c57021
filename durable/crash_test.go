package durable_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
)

// mortal returns a Store in a process that dies before one of its verbs, or between the verb and its answer. After that,
// nothing that the process does has an effect.
func mortal(store durable.Store, die func()) *shaky {
	var left atomic.Int64 // verbs until it dies
	left.Store(1 + rand.Int64N(60))
	return &shaky{Store: store, fail: func(string) error {
		switch n := left.Add(-1); {
		case n > 0:
			return nil
		case n == 0:
			die()
			return []error{errDown, errSilent}[rand.IntN(2)]
		default:
			return errDown
		}
	}}
}

// psp is a provider: it loses responses after the work, works late, declines, and is
// overloaded.
type psp struct {
	dedupes bool // it honours keys
	forgets bool // it does not keep declines

	mu      sync.Mutex
	keys    map[string]bool // that were used
	refused map[string]bool // the keys that were declined
	done    map[string]int  // by business key
}

func (p *psp) work(s *durable.Send) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dedupes && p.keys[s.Key] {
		return
	}
	p.keys[s.Key] = true
	p.done[s.Intent.ID.Key]++
}

// refuses reports whether the provider declines the send. A provider that honours keys also
// keeps declines, or at least checks whether the work of the key was done.
func (p *psp) refuses(s *durable.Send, wish bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dedupes {
		return wish
	}
	if p.forgets {
		return wish && !p.keys[s.Key]
	}
	if wish && !p.keys[s.Key] {
		p.keys[s.Key], p.refused[s.Key] = true, true
	}
	return p.refused[s.Key]
}

func (p *psp) Send(ctx context.Context, s *durable.Send) durable.Outcome {
	chance := rand.IntN(100)
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
	switch {
	case chance < 5:
		p.work(s)
		return durable.Outcome{} // the answer is lost
	case chance < 10: // it arrives late
		time.AfterFunc(time.Duration(rand.IntN(14))*time.Minute, func() { p.work(s) })
		<-ctx.Done()
		return durable.Outcome{Err: ctx.Err()}
	case chance < 15:
		return durable.Outcome{} // it never arrived
	case chance < 20:
		return durable.Outcome{Class: durable.ClassFailed, Status: 503}
	}
	if p.refuses(s, chance < 30) {
		return durable.Outcome{Class: durable.ClassDeclined, Code: "24"}
	}
	p.work(s)
	return durable.Outcome{Class: durable.ClassSucceeded}
}

// asked is a psp with status queries.
type asked struct{ *psp }

func (p asked) Find(_ context.Context, s *durable.Send) durable.Outcome {
	if rand.IntN(10) == 0 {
		return durable.Outcome{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done[s.Intent.ID.Key] > 0 {
		return durable.Outcome{Class: durable.ClassSucceeded}
	}
	return durable.Outcome{Class: durable.ClassNotFound}
}

// TestCrashes kills processes at each verb, many times. The provider must have done the work of
// each intent once, and no intent is left in doubt.
func TestCrashes(t *testing.T) {
	for _, row := range []struct {
		name             string
		dedupes, forgets bool
		finds            bool
		keyLife, settles time.Duration
	}{
		{"keys protect", true, false, false, 24 * time.Hour, time.Minute},
		{"keys protect, and no refusals are kept", true, true, false, 24 * time.Hour, 15 * time.Minute},
		{"keys protect, and it can be asked", true, false, true, 24 * time.Hour, 15 * time.Minute},
		{"keys protect, no refusals are kept, and it can be asked", true, true, true, 24 * time.Hour, 15 * time.Minute},
		{"keys protect nothing, but it can be asked", false, false, true, -1, 15 * time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			for range 20 {
				synctest.Test(t, func(t *testing.T) {
					p := &psp{
						dedupes: row.dedupes, forgets: row.forgets,
						keys: map[string]bool{}, refused: map[string]bool{}, done: map[string]int{},
					}
					var gateway durable.Gateway = p
					if row.finds {
						gateway = asked{p}
					}
					crash(t, p, gateway, row.keyLife, row.settles)
				})
			}
		})
	}
}

func crash(t *testing.T, p *psp, gateway durable.Gateway, keyLife, settles time.Duration) {
	t.Helper()
	const intents = 30
	store := new(durable.Memory)
	engine := func(s durable.Store) *durable.Engine {
		policy := durable.CardDeclines()
		policy.Schedule = durable.Schedule{MaxAttempts: 1000, MaxAge: -1}
		return &durable.Engine{
			Store: s, Gateways: map[string]durable.Gateway{"psp": gateway}, Policy: policy, Concurrency: 8, PollInterval: 20 * time.Second,
			KeyTTL: keyLife, VisibilityDelay: settles, Timeout: time.Minute, DrainTimeout: -1,
		}
	}
	for i := range intents {
		enqueue(t, engine(store), pay(fmt.Sprint("tenant ", i%3), fmt.Sprint(i)))
	}
	for range 25 {
		ctx, die := context.WithCancel(t.Context())
		require.NoError(t, engine(mortal(store, die)).Run(ctx))
	}
	last := engine(store)
	last.PollInterval = 2 * time.Minute
	running(t, last)
	want := map[durable.State]int{durable.StateDone: intents}
	var stats durable.Stats
	for deadline := time.Now().Add(5 * 24 * time.Hour); time.Now().Before(deadline) && !maps.Equal(want, stats.States); {
		time.Sleep(time.Hour) // late requests have arrived
		var err error
		stats, err = store.Stats(t.Context())
		require.NoError(t, err)
	}
	time.Sleep(time.Hour)
	assert.Equal(t, want, stats.States)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range intents {
		if assert.Equal(t, 1, p.done[fmt.Sprint(i)], "intent %d", i) {
			continue
		}
		attempts, err := store.Attempts(t.Context(), pay(fmt.Sprint("tenant ", i%3), fmt.Sprint(i)).ID)
		require.NoError(t, err)
		for _, a := range attempts {
			t.Logf("%+v", a)
		}
	}
}

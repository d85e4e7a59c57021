package durable_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// fleet is processes that die when one of them touches the poison. Each is started again at once.
type fleet struct {
	t     *testing.T
	store *durable.Memory
	began time.Time

	finds     bool // the provider can be queried, and keys protect nothing
	findKills bool // and a query of the poison kills as well
	sends     time.Duration

	mu       sync.Mutex
	kills    []time.Duration
	besides  []int // for each kill: the other sends of the process
	finished map[string]time.Duration
}

// process is one life of a process.
type process struct {
	*fleet

	store *shaky
	die   context.CancelFunc
	mu    sync.Mutex
	busy  int
}

const poison = "poison"

func (p *process) inFlight(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy += n
	return p.busy
}

// work takes its time. The poison kills the process in the middle of it.
func (p *process) work(ctx context.Context, s *durable.Send, kills bool) {
	p.inFlight(1)
	defer p.inFlight(-1)
	time.Sleep(p.sends / 2)
	if s.ID.Key == poison && kills {
		p.kill()
		<-ctx.Done()
	}
	time.Sleep(p.sends / 2)
}

// kill ends the process: nothing that it does has an effect any more.
func (p *process) kill() {
	p.store.set(func(string) error { return errDown })
	p.fleet.mu.Lock()
	defer p.fleet.mu.Unlock()
	p.kills = append(p.kills, time.Since(p.began))
	p.besides = append(p.besides, p.inFlight(0)-1)
	p.die()
}

func (p *process) Send(ctx context.Context, s *durable.Send) durable.Outcome {
	p.work(ctx, s, true)
	if ctx.Err() == nil {
		p.fleet.mu.Lock()
		defer p.fleet.mu.Unlock()
		p.finished[s.ID.Key] = time.Since(p.began)
	}
	return durable.Outcome{Class: durable.ClassSucceeded}
}

// finding is a process with a provider that can be queried.
type finding struct{ *process }

func (p finding) Find(ctx context.Context, s *durable.Send) durable.Outcome {
	p.work(ctx, s, p.findKills)
	return durable.Outcome{Class: durable.ClassNotFound}
}

func (f *fleet) engine(p *process) *durable.Engine {
	var gateway durable.Gateway = p
	keyTTL := 24 * time.Hour
	if f.finds {
		gateway, keyTTL = finding{p}, -1
	}
	return &durable.Engine{
		Store: p.store, Gateways: map[string]durable.Gateway{"psp": gateway}, KeyTTL: keyTTL, PerTenant: 100, DrainTimeout: -1,
		Policy: durable.Schedule{Backoff: resilienthttp.FullJitter(time.Second, 5*time.Minute)},
	}
}

// run starts a process again and again until ctx ends.
func (f *fleet) run(ctx context.Context) {
	for ctx.Err() == nil {
		p := &process{fleet: f, store: &shaky{Store: f.store}}
		var life context.Context
		life, p.die = context.WithCancel(ctx)
		assert.NoError(f.t, f.engine(p).Run(life))
		p.die()
	}
}

// D29: one intent kills each process that sends it. The 24 others that were in flight with it are done soon, and the
// poison is dead after twelve lost leases, with a reason of its own.
func TestPoison(t *testing.T) {
	for _, row := range []struct {
		name             string
		processes        int
		finds, findKills bool
	}{
		{"keys protect", 1, false, false},
		{"two processes", 2, false, false},
		{"keys protect nothing, and a status query does no harm", 1, true, false},
		{"a status query kills too", 1, true, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			const innocents = 24
			f := &fleet{
				t: t, store: new(durable.Memory), began: time.Now(), sends: time.Second, finished: map[string]time.Duration{},
				finds: row.finds, findKills: row.findKills,
			}
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range row.processes {
				all.Go(func() { f.run(ctx) })
			}
			defer all.Wait()
			defer stop()
			e := &durable.Engine{Store: f.store}
			p := f.engine(&process{fleet: f, store: &shaky{Store: f.store}})
			enqueue(t, p, several("comp1", innocents)...)
			enqueue(t, p, pay("comp1", poison))
			time.Sleep(3 * time.Hour)
			if row.finds {
				time.Sleep(9 * time.Hour) // each cycle of send and query lasts for the visibility delay
			}
			synctest.Wait()
			for i := range innocents {
				assertState(t, e, pay("comp1", strconv.Itoa(i)).ID, durable.StateDone)
			}
			record := find(t, e, pay("comp1", poison).ID)
			assert.Equal(t, durable.StateDead, record.State)
			assert.Equal(t, durable.ReasonLeaseExpired, record.Reason)
			assert.Equal(t, "lease_expired 12", record.Code)
			assert.True(t, record.InDoubt)
			f.mu.Lock()
			defer f.mu.Unlock()
			require.Len(t, f.kills, 12)
			t.Logf("kills at %v, with %v others in flight; the last innocent intent at %v", f.kills, f.besides, f.finished)
			for i, others := range f.besides {
				if i >= 3 {
					assert.Zero(t, others, "kill %d", i+1)
				}
			}
			if !row.finds {
				for key, at := range f.finished {
					assert.Less(t, at, 4*time.Minute, key)
				}
			}
		})
	}
}

// loses makes an intent a Suspect: three processes die while they send it.
func loses(t *testing.T, store *durable.Memory, in durable.Intent) {
	t.Helper()
	for range 3 {
		ctx, die := context.WithCancel(t.Context())
		dying := &shaky{Store: store}
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			dying.set(func(string) error { return errDown })
			die()
			return durable.Outcome{}
		}))
		e.Store, e.DrainTimeout = dying, -1
		_, _ = e.WorkOne(ctx, in.ID)
		time.Sleep(time.Minute)
		lost, err := store.Reap(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, lost, 1)
	}
	require.Equal(t, 3, find(t, &durable.Engine{Store: store}, in.ID).LostLeases)
}

// D29: while a suspect is sent, the Engine sends nothing else, whatever claims it. The others go on between two suspects.
func TestSuspect_isSentAlone(t *testing.T) {
	type sent struct {
		key        string
		began, end time.Duration
	}
	for _, row := range []struct {
		name string
		work func(t *testing.T, e *durable.Engine, intents []durable.Intent)
	}{
		{"Run", func(t *testing.T, e *durable.Engine, _ []durable.Intent) { runFor(t, e, time.Minute) }},
		{"Work", func(t *testing.T, e *durable.Engine, intents []durable.Intent) {
			assert.Equal(t, len(intents), work(t, e, 0))
		}},
		{"WorkOne of each at once", func(t *testing.T, e *durable.Engine, intents []durable.Intent) {
			var all sync.WaitGroup
			for _, in := range intents {
				all.Go(func() {
					for next := time.Now(); !next.IsZero(); next = workOne(t, e, in.ID) {
						time.Sleep(time.Until(next))
					}
				})
			}
			all.Wait()
		}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			began := time.Now()
			var mu sync.Mutex
			var sends []sent
			e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
				at := time.Since(began)
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				sends = append(sends, sent{s.ID.Key, at, time.Since(began)})
				return durable.Outcome{Class: durable.ClassSucceeded}
			}))
			e.PerTenant, e.PollInterval = 100, time.Hour
			store := e.Store.(*durable.Memory)
			suspects := several("suspect", 3)
			for i := range suspects {
				suspects[i].Key = fmt.Sprint("suspect ", i)
				require.NoError(t, errOf(store.Apply(t.Context(), []durable.Event{{Kind: durable.EventEnqueue, Intent: suspects[i]}})))
				loses(t, store, suspects[i])
			}
			e.Store = &shaky{Store: store, fail: func(string) error {
				time.Sleep(50 * time.Millisecond)
				return nil
			}}
			others := several("comp1", 30)
			enqueue(t, e, others...)
			row.work(t, e, append(others, suspects...))
			require.Len(t, sends, 33)
			for _, a := range sends {
				for _, b := range sends {
					suspect := a.key[0] == 's' && a.key != b.key
					assert.False(t, suspect && a.began < b.end && b.began < a.end, "%v and %v are in flight together", a, b)
				}
			}
		})
	}
}

// D29: a send that never ends delays a suspect, and a suspect that never ends the others, for a while and no longer.
func TestSuspect_besideEndlessSends(t *testing.T) {
	for _, row := range []struct{ name, endless, waits string }{
		{"another send never ends", "other", "suspect"},
		{"the suspect never ends", "suspect", "other"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			e := through(gatewayFunc(func(ctx context.Context, s *durable.Send) durable.Outcome {
				if s.ID.Key == row.endless {
					<-ctx.Done()
				}
				return durable.Outcome{Class: durable.ClassSucceeded}
			}))
			e.Timeout, e.DrainTimeout = -1, -1
			store := e.Store.(*durable.Memory)
			enqueue(t, e, pay("comp1", "suspect"))
			loses(t, store, pay("comp1", "suspect"))
			if row.endless == "other" {
				enqueue(t, e, pay("comp1", "other"))
			}
			running(t, e)
			time.Sleep(time.Minute)
			if row.endless == "suspect" {
				enqueue(t, e, pay("comp1", "other"))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			record := find(t, e, pay("comp1", row.waits).ID)
			assert.NotEqual(t, durable.StateDone, record.State)
			time.Sleep(6 * time.Minute)
			synctest.Wait()
			assertState(t, e, pay("comp1", row.waits).ID, durable.StateDone)
			assertState(t, e, pay("comp1", row.endless).ID, durable.StateSending)
		})
	}
}

// D29: a call of WorkOne that ends while its suspect waits leaves the turn to others.
func TestSuspect_endedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			time.Sleep(time.Minute)
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		suspect := pay("comp1", "suspect")
		enqueue(t, e, suspect)
		loses(t, e.Store.(*durable.Memory), suspect)
		enqueue(t, e, pay("comp1", "long"))
		go func() { _, _ = e.WorkOne(t.Context(), pay("comp1", "long").ID) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := e.WorkOne(ctx, suspect.ID)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		enqueue(t, e, pay("comp1", "next"))
		go func() { _, _ = e.WorkOne(t.Context(), pay("comp1", "next").ID) }()
		synctest.Wait()
		assertState(t, e, pay("comp1", "next").ID, durable.StateSending)
		time.Sleep(2 * time.Minute)
	})
}

// D29: MaxAge also ends an intent that only loses its workers, before it is sent again.
func TestLostLease_maxAge(t *testing.T) {
	for _, finds := range []bool{false, true} {
		bubble.Run(t, fmt.Sprint("finder ", finds), func(t *testing.T) {
			called := 0
			var g durable.Gateway = gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
				called++
				return durable.Outcome{Class: durable.ClassSucceeded}
			})
			if finds {
				g = finderFunc{g.(gatewayFunc), g.(gatewayFunc)}
			}
			e := through(g)
			e.Policy = durable.Schedule{MaxAge: 2 * time.Minute}
			intents := several("comp1", 20)
			for _, in := range intents {
				enqueue(t, e, in)
				loses(t, e.Store.(*durable.Memory), in)
			}
			runFor(t, e, time.Minute)
			for _, in := range intents {
				record := find(t, e, in.ID)
				assert.Equal(t, durable.StateDead, record.State)
				assert.Equal(t, durable.ReasonUnresolved, record.Reason)
			}
			assert.Zero(t, called)
			assert.Empty(t, holdsOf(t, e), "the gateway had no part in it")
		})
	}
}

// D29, D30: the log says that an intent kept losing its workers, and that the clock was set.
func TestLogTrace_lostLeasesAndClock(t *testing.T) {
	var log bytes.Buffer
	trace := durable.LogTrace(logTo(&log))
	in := pay("comp1", "1")
	r := durable.Record{
		Intent: in, State: durable.StateSending, Worker: "w", Epoch: 1, Generation: 12, LostLeases: 11, InDoubt: true,
		CreatedAt: epoch, UpdatedAt: epoch, NextAt: epoch,
	}
	lost, err := durable.Decide(&r, &durable.Event{Kind: durable.EventLeaseExpired, Intent: in, Worker: "w"}, epoch.Add(time.Minute))
	require.NoError(t, err)
	trace.Changed(&lost)
	assert.Contains(t, log.String(), "level=ERROR msg=\"durable intent_dead\" event=intent_dead")
	assert.Contains(t, log.String(), "code=\"lease_expired 12\" reason=\"lease expired\"")
	log.Reset()
	trace.Failed(fmt.Errorf("%w forward by 20m0s", durable.ErrClockMoved))
	assert.Contains(t, log.String(), "event=clock_moved error=\"durable: the clock of the store was set forward by 20m0s\"")
}

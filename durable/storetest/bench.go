package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Bench measures a store. The zero value lacks a store; everything else is optional. With
// -short it only shows that it runs.
type Bench struct {
	// Open gives an empty store that nobody else uses.
	Open func(b *testing.B) driver.Store

	// Fill brings in what waits, as fast as it can; nil: it is enqueued.
	Fill func(b *testing.B, store driver.Store, backlog Backlog)

	// Unclaim makes what is being sent pending again, without a trace. nil: claims of what
	// is due are not measured.
	Unclaim func(b *testing.B, store driver.Store)
}

// Backlog is pending intents of the operation "charge".
type Backlog struct {
	// Gateway is theirs, "" for "psp".
	Gateway string

	// Rows is how many, of so many Scopes in turn: those that Backlog.Scope names.
	Rows, Scopes int

	// Lopsided: all but the first Scopes are of one scope.
	Lopsided bool

	// Due is when from now they are due, each a microsecond after the one before.
	Due time.Duration
}

// Scope is that of the i-th row.
func (l *Backlog) Scope(i int) string {
	if l.Lopsided && i >= l.Scopes {
		i = l.Scopes / 2
	}
	return fmt.Sprintf("tenant %06d", i%l.Scopes)
}

// tenants is how many share what is done in a benchmark.
const tenants = 100

// size is how many intents a benchmark is about.
func size(n int) int {
	if testing.Short() {
		return min(n, 200)
	}
	return n
}

// Run measures: what is enqueued by callers at once (Enqueue), and in batches of one commit
// (Insert); 10,000 intents that are claimed and finished by the store's verbs, a hundred at a
// time, and by an Engine whose Gateway does nothing (Work); how long a claim of a hundred
// takes (Claim); and counting (Stats).
func (s Bench) Run(b *testing.B) {
	b.Helper()
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprint("Enqueue/callers=", callers), func(b *testing.B) { s.enqueue(b, callers) })
	}
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint("Insert/batch=", n), func(b *testing.B) { s.insert(b, n) })
	}
	b.Run("Work/verbs", func(b *testing.B) { s.work(b, verbs) })
	b.Run("Work/engine", func(b *testing.B) { s.work(b, engine) })
	s.claims(b)
	b.Run("Stats/later=1M", func(b *testing.B) {
		store := s.filled(b, Backlog{Rows: 1_000_000, Scopes: tenants, Due: time.Hour})
		for b.Loop() {
			_, err := store.Stats(b.Context())
			check(b, err)
		}
	})
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// events enqueues the rows from one on.
func (l *Backlog) events(from, n int) []driver.Event {
	events := make([]driver.Event, n)
	for i := range events {
		in := driver.Intent{
			ID:      idempotency.ID{Scope: l.Scope(from + i), Operation: "charge", Key: strconv.Itoa(from + i)},
			Gateway: cmp.Or(l.Gateway, gateway), Payload: []byte(`{"amount": 100}`),
		}
		if l.Due > 0 {
			in.NotBefore = time.Now().Add(l.Due)
		}
		events[i] = enqueue(in)
	}
	return events
}

func applyAll(b *testing.B, store driver.Store, events []driver.Event) {
	b.Helper()
	results, err := store.Apply(b.Context(), events)
	check(b, err)
	for i := range results {
		check(b, results[i].Err)
	}
}

// filled is a store with a backlog.
func (s Bench) filled(b *testing.B, l Backlog) driver.Store {
	b.Helper()
	l.Gateway = cmp.Or(l.Gateway, gateway)
	store := s.Open(b)
	l.Rows = size(l.Rows)
	l.Scopes = min(l.Scopes, l.Rows)
	if s.Fill != nil {
		s.Fill(b, store, l)
		return store
	}
	for i := 0; i < l.Rows; i += 1000 {
		applyAll(b, store, l.events(i, min(1000, l.Rows-i)))
	}
	return store
}

func (s Bench) enqueue(b *testing.B, callers int) {
	b.Helper()
	e := &durable.Engine{Store: s.Open(b), Gateways: map[string]durable.Gateway{gateway: noop{}}}
	events := (&Backlog{Scopes: tenants}).events(0, b.N)
	var next, failed atomic.Int64
	var wait sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wait.Go(func() {
			for i := next.Add(1); i <= int64(len(events)); i = next.Add(1) {
				if _, err := e.Enqueue(b.Context(), events[i-1].Intent); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if failed.Load() > 0 {
		b.Fatal(failed.Load(), "were not enqueued")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "intents/s")
}

func (s Bench) insert(b *testing.B, n int) {
	b.Helper()
	store := s.Open(b)
	l := Backlog{Scopes: tenants}
	done := 0
	for b.Loop() {
		applyAll(b, store, l.events(done, n))
		done += n
	}
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "intents/s")
}

func (s Bench) work(b *testing.B, work func(*testing.B, driver.Store)) {
	b.Helper()
	var took time.Duration
	l := Backlog{Rows: size(10_000), Scopes: tenants}
	rounds := 0
	for b.Loop() {
		b.StopTimer()
		store := s.Open(b)
		for i := 0; i < l.Rows; i += 1000 {
			applyAll(b, store, l.events(i, min(1000, l.Rows)))
		}
		b.StartTimer()
		began := time.Now()
		work(b, store)
		took += time.Since(began)
		b.StopTimer()
		stats, err := store.Stats(b.Context())
		check(b, err)
		if done := stats.States[driver.StateDone]; done != l.Rows {
			b.Fatal(done, "of", l.Rows, "are done")
		}
		rounds++
		b.StartTimer()
	}
	b.ReportMetric(float64(l.Rows*rounds)/took.Seconds(), "intents/s")
}

// noop is a Gateway that does nothing.
type noop struct{}

func (noop) Send(context.Context, *durable.Send) driver.Outcome {
	return driver.Outcome{Class: driver.ClassSucceeded}
}

func engine(b *testing.B, store driver.Store) {
	b.Helper()
	e := &durable.Engine{Store: store, Gateways: map[string]durable.Gateway{gateway: noop{}}, Retention: -1}
	_, err := e.Work(b.Context(), 1<<30)
	check(b, err)
}

// hung is a gateway of whose share nothing is left.
const hung = "hung"

// hundred is a claim of so many.
func hundred() driver.Claim {
	c := claim(worker)
	c.Limit = 100
	allow(&c, func(a *driver.Allowance) { a.PerScope = 25 })
	return c
}

func verbs(b *testing.B, store driver.Store) {
	b.Helper()
	for {
		claimed, err := store.Claim(b.Context(), hundred())
		check(b, err)
		if len(claimed.Changes) == 0 {
			return
		}
		events := make([]driver.Event, len(claimed.Changes))
		for i := range events {
			events[i] = finish(&claimed.Changes[i].Record, driver.Outcome{Class: driver.ClassSucceeded}, driver.Decision{})
		}
		applyAll(b, store, events)
	}
}

// claims is how long a claim takes, flush included, where so many wait: due, evenly or
// nearly all of one tenant; of a gateway that hangs, beside what is due of another; or not
// due for an hour, so that it claims nothing, or what is due beside them. What was claimed is
// put back.
func (s Bench) claims(b *testing.B) {
	b.Helper()
	for _, row := range []struct {
		name    string
		backlog Backlog
		due     int // beside that
	}{
		{"due=1k", Backlog{"", 1000, tenants, false, -time.Hour}, 0},
		{"due=100k", Backlog{"", 100_000, tenants, false, -time.Hour}, 0},
		{"due=100k,one tenant", Backlog{"", 100_000, tenants, true, -time.Hour}, 0},
		{"due=1M", Backlog{"", 1_000_000, tenants, false, -time.Hour}, 0},
		{"due=100k,hung,due=1k", Backlog{hung, 100_000, tenants, false, -time.Hour}, 1000},
		{"due=1M,hung,due=1k", Backlog{hung, 1_000_000, tenants, false, -time.Hour}, 1000},
		{"due=100k,hung,as many tenants,due=1k", Backlog{hung, 100_000, 100_000, false, -time.Hour}, 1000},
		{"later=1k", Backlog{"", 1000, tenants, false, time.Hour}, 0},
		{"later=1M", Backlog{"", 1_000_000, tenants, false, time.Hour}, 0},
		{"later=100k,as many tenants", Backlog{"", 100_000, 100_000, false, time.Hour}, 0},
		{"later=100k,as many tenants,due=1k", Backlog{"", 100_000, 100_000, false, time.Hour}, 1000},
	} {
		due := row.due > 0 || row.backlog.Due < 0
		if due && s.Unclaim == nil {
			continue
		}
		b.Run("Claim/"+row.name, func(b *testing.B) {
			store := s.filled(b, row.backlog)
			if row.due > 0 {
				applyAll(b, store, (&Backlog{Scopes: tenants}).events(row.backlog.Rows, size(row.due)))
			}
			claim := hundred()
			if row.backlog.Gateway == hung {
				claim.Gateways = map[string]driver.Allowance{gateway: {Limit: 100, PerScope: 25}, hung: {PerScope: 25}}
			}
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				claimed, err := store.Claim(b.Context(), claim)
				took = append(took, time.Since(began))
				check(b, err)
				if (len(claimed.Changes) > 0) != due {
					b.Fatal("claimed", len(claimed.Changes))
				}
				for i := range claimed.Changes {
					if claimed.Changes[i].Record.Gateway == hung {
						b.Fatal("claimed of what hangs")
					}
				}
				if due {
					b.StopTimer()
					s.Unclaim(b, store)
					b.StartTimer()
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

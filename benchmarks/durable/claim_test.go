package durable_test

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/internal/interleave"
)

// claimed makes one claim of 100 intents and returns its time, with the commit. It then
// finishes the claimed intents.
func (h *house) claimed(want int) (ms float64) {
	h.b.Helper()
	terms := driver.Terms{KeyTTL: time.Hour}
	claim := driver.Claim{
		Worker: "w", Lease: time.Hour, Limit: 100, Gateways: map[string]driver.Allowance{"psp": {Terms: terms, Limit: 100, PerScope: 25}},
	}
	began := time.Now()
	claimed, err := h.store.Claim(h.b.Context(), claim)
	took := time.Since(began)
	require.NoError(h.b, err)
	require.Len(h.b, claimed.Changes, want)
	events := make([]driver.Event, want)
	scopes := make(map[string]bool)
	for i := range events {
		r := &claimed.Changes[i].Record
		scopes[r.ID.Scope] = true
		events[i] = driver.Event{
			Kind: driver.EventFinish, Intent: durable.Intent{ID: r.ID}, Worker: r.Worker, Generation: r.Generation,
			Terms: &terms, Outcome: durable.Outcome{Class: durable.ClassSucceeded},
		}
	}
	require.Len(h.b, scopes, want, "fair: one of each tenant")
	if want > 0 {
		h.apply(events)
	}
	return float64(took.Microseconds()) / 1000
}

// BenchmarkClaim measures a claim of 100 intents of 100 tenants: without other intents, with
// 100,000 due intents of one tenant, with a million waiting intents; and a claim that finds
// nothing due. x-waiting and x-idle are the ratios to the claim without other intents.
// goroutines is the number that an Engine adds.
func BenchmarkClaim(b *testing.B) {
	alone, backlog, waiting := newHouse(b), newHouse(b), newHouse(b)
	backlog.fill(interleave.Size(100_000), true, -time.Hour)
	waiting.fill(interleave.Size(1_000_000), false, time.Hour)
	all := make(map[string][]float64)
	measure := func(name string, h *house, due int) {
		if due > 0 {
			h.batch(due)
		}
		all[name] = append(all[name], h.claimed(due))
	}
	for b.Loop() {
		for range interleave.Size(15) {
			measure("alone", alone, tenants)
			measure("backlog", backlog, tenants)
			measure("waiting", waiting, tenants)
			measure("idle-alone", alone, 0)
			measure("idle-waiting", waiting, 0)
		}
	}
	for name, times := range all {
		b.ReportMetric(interleave.Quantile(times, 0.5), name+"-p50-ms")
	}
	b.ReportMetric(interleave.Quantile(all["backlog"], 0.99), "backlog-p99-ms")
	b.ReportMetric(interleave.Quantile(interleave.Ratios(all["waiting"], all["alone"]), 0.5), "x-waiting")
	b.ReportMetric(interleave.Quantile(interleave.Ratios(all["idle-waiting"], all["idle-alone"]), 0.5), "x-idle")
	b.ReportMetric(float64(waiting.goroutines()-alone.goroutines()), "goroutines")
	b.ReportMetric(0, "ns/op")
}

// goroutines is the minimum number of goroutines during the claims of an Engine.
func (h *house) goroutines() int {
	h.b.Helper()
	const looks = 8
	store := &counting{Store: h.store, seen: make(chan int, looks)}
	engine := &durable.Engine{Store: store, PollInterval: 5 * time.Millisecond, Gateways: map[string]durable.Gateway{"psp": gatewayFunc(nil)}}
	ctx, cancel := context.WithCancel(h.b.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	least := math.MaxInt
	for range looks {
		least = min(least, <-store.seen)
	}
	cancel()
	require.NoError(h.b, <-ended)
	return least
}

// counting counts the goroutines.
type counting struct {
	durable.Store

	seen chan int
}

// Claim implements durable.Store.
func (c *counting) Claim(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	select {
	case c.seen <- runtime.NumGoroutine():
	default:
	}
	return c.Store.Claim(ctx, claim)
}

package durable

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

// TestDefaults keeps the table of docs/durable.md equal to the code.
func TestDefaults(t *testing.T) {
	e := &Engine{Store: new(Memory), Gateways: map[string]Gateway{"psp": HTTP{}}}
	c := newCore(e)
	r := c.routes["psp"]
	require.Equal(t, c.Concurrency, r.workers)
	days := func(d time.Duration) string { return fmt.Sprintf("%d d", d/(24*time.Hour)) }
	doctable.Check(t, "../docs/durable.md", "engine", []doctable.Row{
		{Field: "Concurrency", Default: c.Concurrency, Unit: "workers: sends at once", Range: fmt.Sprintf("1 to %d", maxConcurrency)},
		{Field: "PerGateway", Default: "Concurrency ÷ gateways", Unit: "workers of each gateway", Range: "≥ 1"},
		{Field: "PerTenant", Default: fmt.Sprintf("Concurrency ÷ %d", c.Concurrency/r.perTenant), Unit: "workers for one scope, divided among the gateways as the workers are", Range: "≥ 1"},
		{Field: "LeaseDuration", Default: c.LeaseDuration, Unit: "a worker without a heartbeat is dead after it", Range: fmt.Sprintf("≥ %v", minLeaseDuration)},
		{Field: "PollInterval", Default: c.PollInterval, Unit: "maximum time between two looks for due intents", Range: fmt.Sprintf("≥ %v", minPollInterval)},
		{Field: "Timeout", Default: c.Timeout, Unit: "maximum duration of a send", Range: "negative: none"},
		{Field: "DrainTimeout", Default: c.DrainTimeout, Unit: "time that Run waits for sends when it stops", Range: "negative: no wait"},
		{Field: "KeyTTL", Default: r.terms.KeyTTL, Unit: "time for which the provider remembers a key", Range: "negative: keys protect nothing"},
		{Field: "VisibilityDelay", Default: r.terms.VisibilityDelay, Unit: "time until a send is visible to status queries", Range: "cannot be switched off"},
		{Field: "Retention", Default: days(c.Retention), Unit: "time for which done and canceled intents are kept", Range: "≥ KeyTTL; negative: for ever"},
		{Field: "Schedule.Backoff", Default: "full jitter, 1 s to 1 h", Unit: "wait before the next attempt", Range: ""},
		{Field: "Schedule.MaxAge", Default: defaultAge, Unit: "time until the intent is a dead letter", Range: "negative: no limit"},
		{Field: "Schedule.MaxAttempts", Default: defaultAttempts, Unit: "declines until the intent is a dead letter, if the Policy repeats declines", Range: "negative: no limit"},
	})
}

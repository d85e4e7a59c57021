package config_test

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/config"
)

// known has the values that Read can set.
type known struct {
	Policy         resilienthttp.Policy
	Idempotency    resilienthttp.Idempotency
	DeadlineHeader resilienthttp.DeadlineHeader
	OwnsRetries    bool
	Parts          []any
}

// knownOf returns the values of a Transport that can be compared.
func knownOf(t *resilienthttp.Transport) known {
	k := known{Policy: t.Policy, Idempotency: t.Idempotency, DeadlineHeader: t.DeadlineHeader, OwnsRetries: t.OwnsRetries}
	k.Policy.Backoff = nil
	for _, part := range []any{t.Budget, t.RateLimit, t.Breaker, t.Hedge} {
		v := reflect.ValueOf(part)
		if v.IsNil() {
			k.Parts = append(k.Parts, nil)
			continue
		}
		for i := range v.Elem().NumField() {
			if f := v.Elem().Type().Field(i); f.IsExported() && f.Type.Kind() != reflect.Func {
				k.Parts = append(k.Parts, v.Elem().Field(i).Interface())
			}
		}
	}
	return k
}

const all = `{
	"Policy": {"MaxAttempts": 3, "AttemptTimeout": "5s", "ReadTimeout": "1m30s", "MaxRetryAfter": "-1s",
		"Backoff": {"Strategy": "Constant", "Base": "3s"}, "Stream": {"FirstEvent": "20s"}},
	"idempotency": {"header": "X-Key", "maxLength": 64, "hosts": ["*.api.test"], "methods": ["POST", "DELETE"], "disabled": true},
	"DeadlineHeader": {"Name": "X-By", "Relative": "grpc-timeout", "Margin": "20ms", "Disabled": true},
	"Budget": {"Ratio": 0.2, "Burst": -1, "Static": true},
	"RateLimit": {"Limit": 50.5, "Burst": 7, "MaxInFlight": 4, "maxWait": "10s", "MaxBlock": "2h", "IgnoreHeaders": true},
	"Breaker": {"FailureRatio": 0.5, "MinRequests": 9, "Window": "11s", "Cooldown": "1s", "MaxCooldown": "4s", "Probes": 2, "MaxWait": "9s", "Static": true},
	"Hedge": {"Delay": "250ms", "Quantile": 0.9, "MaxRatio": 1e-2},
	"OwnsRetries": true
}`

func TestRead(t *testing.T) {
	t.Run("all fields: set", func(t *testing.T) {
		var tr resilienthttp.Transport
		require.NoError(t, config.Read(iotest.OneByteReader(strings.NewReader(all)), &tr))
		want := &resilienthttp.Transport{
			Policy:         resilienthttp.Policy{MaxAttempts: 3, AttemptTimeout: 5 * time.Second, ReadTimeout: 90 * time.Second, MaxRetryAfter: -time.Second, Stream: &resilienthttp.Stream{FirstEvent: 20 * time.Second}},
			Idempotency:    resilienthttp.Idempotency{Header: "X-Key", Methods: []string{"POST", "DELETE"}, MaxLength: 64, Hosts: []string{"*.api.test"}, Disabled: true},
			DeadlineHeader: resilienthttp.DeadlineHeader{Name: "X-By", Relative: "grpc-timeout", Margin: 20 * time.Millisecond, Disabled: true},
			Budget:         &resilienthttp.Budget{Ratio: 0.2, Burst: -1, Static: true},
			RateLimit:      &resilienthttp.RateLimit{Limit: 50.5, Burst: 7, MaxInFlight: 4, MaxWait: 10 * time.Second, MaxBlock: 2 * time.Hour, IgnoreHeaders: true},
			Breaker: &resilienthttp.Breaker{
				FailureRatio: 0.5, MinRequests: 9, Window: 11 * time.Second, Cooldown: time.Second, MaxCooldown: 4 * time.Second, Probes: 2, MaxWait: 9 * time.Second, Static: true,
			},
			Hedge: &resilienthttp.Hedge{Delay: 250 * time.Millisecond, Quantile: 0.9, MaxRatio: 0.01}, OwnsRetries: true,
		}
		require.Equal(t, knownOf(want), knownOf(&tr))
		require.Equal(t, 3*time.Second, tr.Policy.Backoff(5, 0))
	})
	t.Run("unnamed fields: unchanged", func(t *testing.T) {
		changed := func(resilienthttp.BreakerChange) {}
		tr := &resilienthttp.Transport{
			Policy: resilienthttp.Policy{MaxAttempts: 7, Backoff: resilienthttp.Constant(time.Second)}, Breaker: &resilienthttp.Breaker{Probes: 2, OnChange: changed},
			Base: http.DefaultTransport,
		}
		breaker := tr.Breaker
		require.NoError(t, config.Read(strings.NewReader(`{"Policy": {"AttemptTimeout": "2s"}, "Breaker": {"MinRequests": 4}}`), tr))
		require.Equal(t, 7, tr.Policy.MaxAttempts)
		require.Equal(t, time.Second, tr.Policy.Backoff(1, 0))
		require.Same(t, breaker, tr.Breaker, "a shared Breaker stays shared")
		require.Equal(t, []any{2, 4, true}, []any{breaker.Probes, breaker.MinRequests, breaker.OnChange != nil})
		require.Nil(t, tr.Hedge)
	})
	t.Run("empty object: hedging is on", func(t *testing.T) {
		var tr resilienthttp.Transport
		require.NoError(t, config.Read(strings.NewReader(`{"Hedge": {}}`), &tr))
		require.NotNil(t, tr.Hedge)
		require.NoError(t, config.Read(strings.NewReader(`{"Hedge": {"Delay": "1s"}}`), &tr))
		require.Equal(t, time.Second, tr.Hedge.Delay)
	})
	t.Run("MaxScopes", func(t *testing.T) {
		var tr resilienthttp.Transport
		require.NoError(t, config.Read(strings.NewReader(`{"MaxScopes": 100}`), &tr))
		require.Equal(t, 100, tr.MaxScopes)
		require.ErrorContains(t, config.Read(strings.NewReader(`{"MaxScopes": -1}`), &tr), "MaxScopes is -1")
	})
	t.Run("Connections: the Base", func(t *testing.T) {
		var tr resilienthttp.Transport
		require.NoError(t, config.Read(strings.NewReader(`{"Connections": {"MaxAge": "5m"}}`), &tr))
		require.Equal(t, 5*time.Minute, tr.Base.(*resilienthttp.Connections).MaxAge)
		base := &resilienthttp.Connections{Transport: &http.Transport{}, MaxAge: time.Hour}
		tr = resilienthttp.Transport{Base: base}
		require.NoError(t, config.Read(strings.NewReader(`{"Connections": {}}`), &tr))
		require.Equal(t, time.Hour, tr.Base.(*resilienthttp.Connections).MaxAge)
		require.Same(t, base.Transport, tr.Base.(*resilienthttp.Connections).Transport)
		tr = resilienthttp.Transport{Base: http.DefaultTransport}
		require.ErrorContains(t, config.Read(strings.NewReader(`{"Connections": {}}`), &tr), "Connections: Base is a *http.Transport")
		require.Same(t, http.DefaultTransport, tr.Base)
	})
	t.Run("byte order mark: accepted", func(t *testing.T) {
		var tr resilienthttp.Transport
		require.NoError(t, config.Read(strings.NewReader("\ufeff"+`{"Policy": {"MaxAttempts": 3}}`), &tr))
		require.Equal(t, 3, tr.Policy.MaxAttempts)
	})
	t.Run("each strategy: accepted", func(t *testing.T) {
		for _, name := range []string{"FullJitter", "decorrelatedJitter"} {
			var tr resilienthttp.Transport
			require.NoError(t, config.Read(strings.NewReader(`{"Policy": {"Backoff": {"Strategy": "`+name+`", "Base": "1s", "Max": "1s"}}}`), &tr), name)
			require.LessOrEqual(t, tr.Policy.Backoff(9, 0), time.Second)
		}
	})
}

func TestRead_invalidText(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       []string
	}{
		{"empty text", ``, []string{"line 1", "unexpected end"}},
		{"syntax error: line number", "{\n\"Policy\": {\n\"MaxAttempts\": 3,}}", []string{"line 3"}},
		{"list", `[1]`, []string{"config: text: got list, want object"}},
		{"null", `null`, []string{"config: text: got null, want object"}},
		{"two objects", `{} {}`, []string{"line 1"}},
		{"unknown field", `{"Policy": {"AtemptTimeout": "5s"}}`, []string{"config: Policy.AtemptTimeout: unknown field"}},
		{"unknown part", `{"Retry": {}}`, []string{"Retry: unknown field"}},
		{"unexported fields", `{"once": 1, "Budget": {"scopes": {}}}`, []string{"once: unknown field", "Budget.scopes: unknown field"}},
		{"duplicate field", `{"Policy": {"MaxAttempts": 1, "maxAttempts": 2}}`, []string{"Policy.maxAttempts: duplicate field"}},
		{"number as duration", `{"Policy": {"AttemptTimeout": 5}}`, []string{`Policy.AttemptTimeout: got 5, want duration string such as "5s"`}},
		{"duration without unit", `{"Policy": {"AttemptTimeout": "5"}}`, []string{`Policy.AttemptTimeout: got "5", want duration string`}},
		{"error of Validate", `{"Policy": {"AttemptTimeout": "5ns"}}`, []string{"Policy.AttemptTimeout is 5ns"}},
		{"percentage as ratio", `{"Breaker": {"FailureRatio": 50}}`, []string{"Breaker.FailureRatio is 50"}},
		{"functions", `{"Base": {}, "Trace": {"CallDone": 1, "Nothing": 2}, "Policy": {"Classify": "x"}}`, []string{"Base: can only", "Trace: can only", "Policy.Classify: can only"}},
		{"fields of Connections", `{"Connections": {"MaxAge": 5, "Transport": {}}}`, []string{"Connections.MaxAge: got 5, want duration", "Connections.Transport: unknown field"}},
		{"a function", `{"RateLimit": {"Cost": 3}}`, []string{"RateLimit.Cost: can only be set in Go"}},
		{"empty Trace", `{"Trace": {}}`, []string{"Trace: can only be set in Go"}},
		{"list items of wrong types", `{"Idempotency": {"Methods": ["POST", 1, null], "Hosts": [["a.test"]]}}`, []string{
			"Idempotency.Methods[1]: got 1, want string", "Idempotency.Hosts[0]: got list, want string",
		}},
		{"host in upper case", `{"Idempotency": {"Hosts": ["API.x.com"]}}`, []string{`config: invalid configuration: Idempotency.Hosts has "API.x.com", must be in lower case`}},
		{"UTF-16", "\xff\xfe{\x00}\x00", []string{"line 1"}},
		{"wrong types", `{"Policy": {"MaxAttempts": 1.5}, "OwnsRetries": "yes", "Budget": {"Ratio": "a lot"}, "Hedge": [], "Idempotency": {"Methods": "POST", "Header": 7}}`, []string{
			"Policy.MaxAttempts: got 1.5, want integer", "OwnsRetries: got string, want boolean",
			"Budget.Ratio: got string, want number", "Hedge: got list, want object",
			"Idempotency.Methods: got string, want list of strings", "Idempotency.Header: got 7, want string",
		}},
		{"nulls", `{"Policy": null, "Budget": {"Ratio": null, "Burst": null}, "Idempotency": {"Methods": ["POST", null]}}`, []string{
			"Policy: got null, want object", "Budget.Ratio: got null, want number", "Budget.Burst: got null", "Idempotency.Methods[1]: got null",
		}},
		{"numbers too large", `{"Budget": {"Ratio": 1e999}, "Policy": {"MaxAttempts": 99999999999999999999999}}`, []string{"Budget.Ratio", "Policy.MaxAttempts"}},
		{"unknown strategy", `{"Policy": {"Backoff": {"Strategy": "Fibonacci", "Base": "1s", "Max": "2s"}}}`, []string{`Policy.Backoff.Strategy: got "Fibonacci"`}},
		{"backoff without Base", `{"Policy": {"Backoff": {"Strategy": "FullJitter", "Max": "2s"}}}`, []string{"Policy.Backoff.Base: missing"}},
		{"Max below Base", `{"Policy": {"Backoff": {"Strategy": "FullJitter", "Base": "3s", "Max": "2s"}}}`, []string{"Policy.Backoff.Max: is 2s, must not be less than Base"}},
		{"Constant with Max", `{"Policy": {"Backoff": {"Strategy": "Constant", "Base": "3s", "Max": "5s"}}}`, []string{"Policy.Backoff.Max: not used by Constant"}},
		{"backoff below 1µs", `{"Policy": {"Backoff": {"Strategy": "Constant", "Base": "3ns"}}}`, []string{"Policy.Backoff.Base: is 3ns"}},
		{"string as backoff", `{"Policy": {"Backoff": "1s"}}`, []string{"Policy.Backoff: got string"}},
		{"longer than MaxSize", `{"Scope` + strings.Repeat("e", config.MaxSize) + `": 1}`, []string{"longer than"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: 7}, Budget: &resilienthttp.Budget{Ratio: 0.3}}
			before := knownOf(tr)
			err := config.Read(strings.NewReader(row.text), tr)
			require.Error(t, err)
			for _, want := range row.want {
				require.ErrorContains(t, err, want)
			}
			require.Equal(t, before, knownOf(tr), "the Transport is unchanged")
			require.Nil(t, tr.Hedge)
		})
	}
	t.Run("reader fails: its error", func(t *testing.T) {
		broken := errors.New("disk")
		require.ErrorIs(t, config.Read(iotest.ErrReader(broken), &resilienthttp.Transport{}), broken)
	})
	t.Run("nil Transport: error", func(t *testing.T) {
		require.Error(t, config.Read(strings.NewReader(`{}`), nil))
	})
	t.Run("nil Reader: error", func(t *testing.T) {
		require.ErrorContains(t, config.Read(nil, &resilienthttp.Transport{}), "Reader is nil")
	})
}

// Read does not panic. After an error the Transport is unchanged. After success it passes
// Validate, and a second Read of the text does not change it.
func FuzzRead(f *testing.F) {
	f.Add(all)
	f.Add(`{"Policy": {"Backoff": {"Strategy": "FullJitter", "Base": "1s", "Max": "1m"}}}`)
	f.Add(`{"Trace": {}, "Hedge": {}}`)
	f.Add("\ufeff" + `{"Idempotency": {"Methods": ["POST", 1]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: 7}, Budget: &resilienthttp.Budget{Ratio: 0.3}}
		before := knownOf(tr)
		if err := config.Read(strings.NewReader(text), tr); err != nil {
			require.Equal(t, before, knownOf(tr))
			return
		}
		require.NoError(t, tr.Validate())
		once := knownOf(tr)
		require.NoError(t, config.Read(strings.NewReader(text), tr))
		require.Equal(t, once, knownOf(tr))
	})
}

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

// known are the values that Read may set.
type known struct {
	Policy      resilienthttp.Policy
	Idempotency resilienthttp.Idempotency
	Deadline    resilienthttp.Deadline
	OwnsRetries bool
	Parts       []any
}

// knownOf are those of a Transport, without what cannot be compared.
func knownOf(t *resilienthttp.Transport) known {
	k := known{Policy: t.Policy, Idempotency: t.Idempotency, Deadline: t.Deadline, OwnsRetries: t.OwnsRetries}
	k.Policy.Backoff = nil
	k.Policy.AdaptiveTimeout = nil
	for _, part := range []any{t.Policy.AdaptiveTimeout, t.Budget, t.RateLimit, t.Breaker, t.Hedge} {
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
		"Backoff": {"Strategy": "Constant", "Base": "3s"},
		"AdaptiveTimeout": {"Multiple": 3, "Quantile": 0.98, "Min": "100ms", "MinSamples": 50}},
	"idempotency": {"header": "X-Key", "maxLength": 64, "hosts": ["*.api.test"], "methods": ["POST", "DELETE"], "disabled": true},
	"Deadline": {"Header": "X-By", "Margin": "20ms", "Max": "30s", "Disabled": true},
	"Budget": {"Ratio": 0.2, "MinTokens": -1, "Static": true},
	"RateLimit": {"Limit": 50.5, "Burst": 7, "maxWait": "10s", "MaxBlock": "2h", "IgnoreHeaders": true},
	"Breaker": {"FailureRatio": 0.5, "MinRequests": 9, "Window": "11s", "Cooldown": "1s", "MaxCooldown": "4s", "Probes": 2, "Static": true},
	"Hedge": {"Delay": "250ms", "Quantile": 0.9, "MaxRatio": 1e-2},
	"OwnsRetries": true
}`

func TestRead(t *testing.T) {
	t.Run("all there is", func(t *testing.T) {
		var tr resilienthttp.Transport
		require.NoError(t, config.Read(iotest.OneByteReader(strings.NewReader(all)), &tr))
		want := &resilienthttp.Transport{
			Policy:      resilienthttp.Policy{MaxAttempts: 3, AttemptTimeout: 5 * time.Second, ReadTimeout: 90 * time.Second, MaxRetryAfter: -time.Second, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{Multiple: 3, Quantile: 0.98, Min: 100 * time.Millisecond, MinSamples: 50}},
			Idempotency: resilienthttp.Idempotency{Header: "X-Key", Methods: []string{"POST", "DELETE"}, MaxLength: 64, Hosts: []string{"*.api.test"}, Disabled: true},
			Deadline:    resilienthttp.Deadline{Header: "X-By", Margin: 20 * time.Millisecond, Max: 30 * time.Second, Disabled: true},
			Budget:      &resilienthttp.Budget{Ratio: 0.2, MinTokens: -1, Static: true},
			RateLimit:   &resilienthttp.RateLimit{Limit: 50.5, Burst: 7, MaxWait: 10 * time.Second, MaxBlock: 2 * time.Hour, IgnoreHeaders: true},
			Breaker: &resilienthttp.Breaker{
				FailureRatio: 0.5, MinRequests: 9, Window: 11 * time.Second, Cooldown: time.Second, MaxCooldown: 4 * time.Second, Probes: 2, Static: true,
			},
			Hedge: &resilienthttp.Hedge{Delay: 250 * time.Millisecond, Quantile: 0.9, MaxRatio: 0.01}, OwnsRetries: true,
		}
		require.Equal(t, knownOf(want), knownOf(&tr))
		require.Equal(t, 3*time.Second, tr.Policy.Backoff(5, 0))
	})
	t.Run("what is not named stays as it is", func(t *testing.T) {
		changed := func(resilienthttp.BreakerChange) {}
		tr := &resilienthttp.Transport{
			Policy: resilienthttp.Policy{MaxAttempts: 7, Backoff: resilienthttp.Constant(time.Second)}, Breaker: &resilienthttp.Breaker{Probes: 2, OnChange: changed},
			Base: http.DefaultTransport,
		}
		breaker := tr.Breaker
		require.NoError(t, config.Read(strings.NewReader(`{"Policy": {"AttemptTimeout": "2s"}, "Breaker": {"MinRequests": 4}}`), tr))
		require.Equal(t, 7, tr.Policy.MaxAttempts)
		require.Equal(t, time.Second, tr.Policy.Backoff(1, 0))
		require.Same(t, breaker, tr.Breaker, "or it would not be shared any more")
		require.Equal(t, []any{2, 4, true}, []any{breaker.Probes, breaker.MinRequests, breaker.OnChange != nil})
		require.Nil(t, tr.Hedge)
	})
	t.Run("an empty object turns hedging on, and is no use", func(t *testing.T) {
		var tr resilienthttp.Transport
		require.NoError(t, config.Read(strings.NewReader(`{"Hedge": {}}`), &tr))
		require.NotNil(t, tr.Hedge)
		require.NoError(t, config.Read(strings.NewReader(`{"Hedge": {"Delay": "1s"}}`), &tr))
		require.Equal(t, time.Second, tr.Hedge.Delay)
	})
	t.Run("with a byte order mark", func(t *testing.T) {
		var tr resilienthttp.Transport
		require.NoError(t, config.Read(strings.NewReader("\ufeff"+`{"Policy": {"MaxAttempts": 3}}`), &tr))
		require.Equal(t, 3, tr.Policy.MaxAttempts)
	})
	t.Run("strategies", func(t *testing.T) {
		for _, name := range []string{"FullJitter", "equalJitter", "DecorrelatedJitter", "Exponential"} {
			var tr resilienthttp.Transport
			require.NoError(t, config.Read(strings.NewReader(`{"Policy": {"Backoff": {"Strategy": "`+name+`", "Base": "1s", "Max": "1s"}}}`), &tr), name)
			require.LessOrEqual(t, tr.Policy.Backoff(9, 0), time.Second)
		}
	})
}

func TestReadRefuses(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", ``, []string{"line 1", "unexpected end"}},
		{"no JSON", "{\n\"Policy\": {\n\"MaxAttempts\": 3,}}", []string{"line 3"}},
		{"no object", `[1]`, []string{"it is a list, and must be an object"}},
		{"null", `null`, []string{"it is null"}},
		{"something behind it", `{} {}`, []string{"line 1"}},
		{"a field that is none", `{"Policy": {"AtemptTimeout": "5s"}}`, []string{"Policy.AtemptTimeout is no field"}},
		{"a part that is none", `{"Retry": {}}`, []string{"Retry is no field"}},
		{"an unexported field", `{"once": 1, "Budget": {"scopes": {}}}`, []string{"once is no field", "Budget.scopes is no field"}},
		{"twice", `{"Policy": {"MaxAttempts": 1, "maxAttempts": 2}}`, []string{"Policy.maxAttempts is there twice"}},
		{"a duration that is a number", `{"Policy": {"AttemptTimeout": 5}}`, []string{"Policy.AttemptTimeout is 5, and must be a duration as text"}},
		{"a duration without a unit", `{"Policy": {"AttemptTimeout": "5"}}`, []string{`Policy.AttemptTimeout is "5", which is no duration`}},
		{"what Validate refuses", `{"Policy": {"AttemptTimeout": "5ns"}}`, []string{"Policy.AttemptTimeout is 5ns"}},
		{"a percentage", `{"Breaker": {"FailureRatio": 50}}`, []string{"Breaker.FailureRatio is 50"}},
		{"only in Go", `{"Base": {}, "Trace": {"CallDone": 1, "Nothing": 2}, "Policy": {"Classify": "x"}}`, []string{"Base can only", "Trace can only", "Policy.Classify can only"}},
		{"a Trace of nothing", `{"Trace": {}}`, []string{"Trace can only be set in Go"}},
		{"a list of what is no string", `{"Idempotency": {"Methods": ["POST", 1, null], "Hosts": [["a.test"]]}}`, []string{
			"Idempotency.Methods[1] is 1, and must be a string", "Idempotency.Hosts[0] is a list, and must be a string",
		}},
		{"a host in capitals", `{"Idempotency": {"Hosts": ["API.x.com"]}}`, []string{`config: invalid configuration: Idempotency.Hosts has "API.x.com", must be in lower case`}},
		{"UTF-16", "\xff\xfe{\x00}\x00", []string{"line 1"}},
		{"wrong kinds", `{"Policy": {"MaxAttempts": 1.5}, "OwnsRetries": "yes", "Budget": {"Ratio": "a lot"}, "Hedge": [], "Idempotency": {"Methods": "POST", "Header": 7}}`, []string{
			"Policy.MaxAttempts is 1.5, and must be a whole number", "OwnsRetries is a string, and must be true or false",
			"Budget.Ratio is a string, and must be a number", "Hedge is a list, and must be an object",
			"Idempotency.Methods is a string, and must be a list of strings", "Idempotency.Header is 7, and must be a string",
		}},
		{"nulls", `{"Policy": null, "Budget": {"Ratio": null, "MinTokens": null}, "Idempotency": {"Methods": ["POST", null]}}`, []string{
			"Policy is null", "Budget.Ratio is null", "Budget.MinTokens is null", "Idempotency.Methods[1] is null",
		}},
		{"too large", `{"Budget": {"Ratio": 1e999}, "Policy": {"MaxAttempts": 99999999999999999999999}}`, []string{"Budget.Ratio", "Policy.MaxAttempts"}},
		{"a backoff of no kind", `{"Policy": {"Backoff": {"Strategy": "Fibonacci", "Base": "1s", "Max": "2s"}}}`, []string{"Policy.Backoff.Strategy is \"Fibonacci\""}},
		{"a backoff without a base", `{"Policy": {"Backoff": {"Strategy": "FullJitter", "Max": "2s"}}}`, []string{"Policy.Backoff.Base is missing"}},
		{"a backoff that shrinks", `{"Policy": {"Backoff": {"Strategy": "FullJitter", "Base": "3s", "Max": "2s"}}}`, []string{"Policy.Backoff.Max is less"}},
		{"a maximum of what is constant", `{"Policy": {"Backoff": {"Strategy": "Constant", "Base": "3s", "Max": "5s"}}}`, []string{"Policy.Backoff.Max is of no use"}},
		{"a backoff that nobody waits", `{"Policy": {"Backoff": {"Strategy": "Constant", "Base": "3ns"}}}`, []string{"Policy.Backoff.Base is 3ns"}},
		{"an adaptive timeout that nobody can mean", `{"Policy": {"AdaptiveTimeout": {"Multiple": 0.5, "Min": "2s"}}}`, []string{"Policy.AdaptiveTimeout.Multiple is 0.5"}},
		{"a backoff that is text", `{"Policy": {"Backoff": "1s"}}`, []string{"Policy.Backoff is a string"}},
		{"long", `{"Scope` + strings.Repeat("e", config.MaxSize) + `": 1}`, []string{"more than"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: 7, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{Min: time.Second}}, Budget: &resilienthttp.Budget{Ratio: 0.3}}
			before := knownOf(tr)
			err := config.Read(strings.NewReader(row.text), tr)
			require.Error(t, err)
			for _, want := range row.want {
				require.ErrorContains(t, err, want)
			}
			require.Equal(t, before, knownOf(tr), "nothing is changed")
			require.Nil(t, tr.Hedge)
		})
	}
	t.Run("a reader that fails", func(t *testing.T) {
		broken := errors.New("disk")
		require.ErrorIs(t, config.Read(iotest.ErrReader(broken), &resilienthttp.Transport{}), broken)
	})
	t.Run("no Transport", func(t *testing.T) {
		require.Error(t, config.Read(strings.NewReader(`{}`), nil))
	})
}

// FuzzRead: no text makes it panic; one that is refused changes nothing; and one that is
// taken makes a Transport that Validate accepts, and the same one when it is read again.
func FuzzRead(f *testing.F) {
	f.Add(all)
	f.Add(`{"Policy": {"Backoff": {"Strategy": "FullJitter", "Base": "1s", "Max": "1m"}}}`)
	f.Add(`{"Trace": {}, "Hedge": {}}`)
	f.Add("\ufeff" + `{"Idempotency": {"Methods": ["POST", 1]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		tr := &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: 7, AdaptiveTimeout: &resilienthttp.AdaptiveTimeout{Min: time.Second}}, Budget: &resilienthttp.Budget{Ratio: 0.3}}
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

package resilienthttp_test

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// Validate returns all errors, without a call.
func TestValidate(t *testing.T) {
	type fields = resilienthttp.Transport
	for _, row := range []struct {
		name string
		tr   *fields
		want []string
	}{
		{"zero", &fields{}, nil},
		{"all numbers mean something", &fields{
			Policy: resilienthttp.Policy{MaxAttempts: -1, AttemptTimeout: -1}, Budget: &resilienthttp.Budget{Ratio: math.NaN()},
			Breaker: &resilienthttp.Breaker{FailureRatio: math.Inf(1)}, Hedge: &resilienthttp.Hedge{Quantile: -7},
		}, nil},
		{"names", &fields{Idempotency: resilienthttp.Idempotency{Header: "a b"}, DeadlineHeader: resilienthttp.DeadlineHeader{Name: "c:"}}, []string{
			"Idempotency.Header is not", "DeadlineHeader.Name is not",
		}},
		{"one name for two", &fields{Idempotency: resilienthttp.Idempotency{Header: "x-request-deadline"}}, []string{"are the same"}},
		{"a relative name", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "a b"}}, []string{"DeadlineHeader.Relative is not"}},
		{"a relative name that is ours", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "x-retry-owner"}}, []string{"DeadlineHeader.Relative is X-Retry-Owner"}},
		{"a relative name that is the priority's", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "x-request-priority"}}, []string{"DeadlineHeader.Relative is X-Request-Priority, which the Transport uses already"}},
		{"a key in the priority's field", &fields{Idempotency: resilienthttp.Idempotency{Header: "x-request-priority"}}, []string{"Idempotency.Header is X-Request-Priority"}},
		{"both deadlines in one field", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Name: "grpc-timeout", Relative: "Grpc-Timeout"}}, []string{"DeadlineHeader.Name and DeadlineHeader.Relative are the same"}},
		{"the absolute deadline's default name", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "x-request-deadline"}}, []string{"DeadlineHeader.Name and DeadlineHeader.Relative are the same"}},
		{"the key's name", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Relative: "idempotency-key"}}, []string{"Idempotency.Header and DeadlineHeader.Relative are the same"}},
		{"the default's name, while another one is sent", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Name: "X-Request-Timeout-Ms", Relative: "grpc-timeout"}}, []string{"X-Request-Timeout-Ms"}},
		{"a name that is ours", &fields{DeadlineHeader: resilienthttp.DeadlineHeader{Name: "x-retry-owner"}}, []string{"X-Retry-Owner"}},
		{"no method", &fields{Idempotency: resilienthttp.Idempotency{Methods: []string{"PO ST"}}}, []string{"\"PO ST\" is not a method"}},
		{"nil Base of a type", &fields{Base: (*http.Transport)(nil)}, []string{"nil"}},
		{"nil Connections", &fields{Base: (*resilienthttp.Connections)(nil)}, []string{"Base is a nil *Connections"}},
		{"MaxAge in nanoseconds", &fields{Base: &resilienthttp.Connections{MaxAge: 60}}, []string{"Connections.MaxAge is 60ns"}},
		{"nil Base of our type", &fields{Base: (*fields)(nil)}, []string{"nil"}},
		{"nanoseconds", &fields{
			Policy:         resilienthttp.Policy{AttemptTimeout: 5, ReadTimeout: 30, MaxRetryAfter: 60, Stream: &resilienthttp.Stream{FirstEvent: 20}},
			DeadlineHeader: resilienthttp.DeadlineHeader{Margin: 2},
			RateLimit:      &resilienthttp.RateLimit{MaxWait: 60, MaxBlock: 3}, Hedge: &resilienthttp.Hedge{Delay: 100},
			Breaker: &resilienthttp.Breaker{Window: 10, Cooldown: 100, MaxCooldown: 200, MaxWait: 300},
		}, []string{
			"Policy.AttemptTimeout is 5ns", "Policy.ReadTimeout", "Policy.MaxRetryAfter", "Policy.Stream.FirstEvent is 20ns", "DeadlineHeader.Margin",
			"RateLimit.MaxWait", "RateLimit.MaxBlock", "Hedge.Delay", "Breaker.Window", "Breaker.Cooldown", "Breaker.MaxCooldown", "Breaker.MaxWait",
		}},
		{"the least of all may be meant", &fields{
			Policy:         resilienthttp.Policy{AttemptTimeout: 1, ReadTimeout: 1, MaxRetryAfter: 1},
			DeadlineHeader: resilienthttp.DeadlineHeader{Disabled: true, Margin: 1},
			RateLimit:      &resilienthttp.RateLimit{MaxWait: 1, MaxBlock: 1}, Hedge: &resilienthttp.Hedge{Delay: 1},
			Breaker: &resilienthttp.Breaker{Window: 1, Cooldown: 1, MaxCooldown: 1},
		}, nil},
		{"and a microsecond", &fields{Policy: resilienthttp.Policy{AttemptTimeout: time.Microsecond, ReadTimeout: time.Microsecond}}, nil},
		{"percentages", &fields{Breaker: &resilienthttp.Breaker{FailureRatio: 50}, Hedge: &resilienthttp.Hedge{Quantile: 99.9}}, []string{
			"Breaker.FailureRatio is 50", "Hedge.Quantile is 99.9",
		}},
		{"ratios of 1 or more", &fields{Breaker: &resilienthttp.Breaker{FailureRatio: 1.5}, Hedge: &resilienthttp.Hedge{Quantile: 2}}, nil},
		{"ratios above 1 without limit", &fields{Budget: &resilienthttp.Budget{Ratio: 10}, Hedge: &resilienthttp.Hedge{MaxRatio: 3}}, nil},
		{"most scopes", &fields{MaxScopes: 1_000_000}, nil},
		{"more scopes", &fields{MaxScopes: 1_000_001}, []string{"MaxScopes is 1000001, must be from 0 to 1000000"}},
		{"fewer than no scopes", &fields{MaxScopes: -1}, []string{"MaxScopes is -1, must be from 0 to 1000000"}},
		{"keys that are too long", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 35}}, []string{"Idempotency.MaxLength is 35, must be at least 36"}},
		{"keys that just fit", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 36}}, nil},
		{"short keys of one's own", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 5, NewKey: func(*http.Request) string { return "k" }}}, nil},
		{"short keys of callers", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 5, Disabled: true}}, nil},
		{"short keys, and none are made", &fields{Idempotency: resilienthttp.Idempotency{MaxLength: 5, Methods: []string{}}}, nil},
		{"no time is left", &fields{Policy: resilienthttp.Policy{AttemptTimeout: time.Second}, DeadlineHeader: resilienthttp.DeadlineHeader{Margin: time.Second}}, []string{"DeadlineHeader.Margin"}},
		{"no time is left, and no deadline is sent", &fields{
			Policy: resilienthttp.Policy{AttemptTimeout: time.Second}, DeadlineHeader: resilienthttp.DeadlineHeader{Disabled: true, Margin: time.Second},
		}, nil},
		{"hosts", &fields{Idempotency: resilienthttp.Idempotency{Hosts: []string{"https://api.test", "*.API.test", "", "*.ok.test", "ok.test:80"}, MaxLength: -1}}, []string{
			"Idempotency.Hosts has \"https://api.test\", must be a host", "Idempotency.Hosts has \"*.API.test\", must be in lower case", "Idempotency.Hosts has an empty host", "Idempotency.MaxLength",
		}},
		{"QUERY in lower case", &fields{Idempotency: resilienthttp.Idempotency{Methods: []string{"query"}}}, []string{"\"query\" must be \"QUERY\""}},
		{"a method in lower case", &fields{Idempotency: resilienthttp.Idempotency{Methods: []string{"post"}}}, []string{"POST"}},
		{"a method of one's own", &fields{Idempotency: resilienthttp.Idempotency{Methods: []string{"Charge"}}}, nil},
		{"a header that means something else", &fields{Idempotency: resilienthttp.Idempotency{Header: "authorization"}}, []string{"Authorization"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.tr.Validate()
			if row.want == nil {
				require.NoError(t, err)
				return
			}
			for _, want := range row.want {
				require.ErrorContains(t, err, want)
			}
			require.Len(t, strings.Split(err.Error(), "\n"), len(row.want), "and no more: %v", err)
			_, got := row.tr.RoundTrip(get(t))
			require.EqualError(t, asError(t, got).Err, err.Error(), "each call returns the same error")
			require.True(t, asError(t, got).NotSent())
		})
	}
	t.Run("itself", func(t *testing.T) {
		tr := &resilienthttp.Transport{}
		tr.Base = tr
		require.ErrorContains(t, tr.Validate(), "itself")
	})
	t.Run("does not use the Transport", func(t *testing.T) {
		tr := &resilienthttp.Transport{Base: script(status(500))}
		require.NoError(t, tr.Validate())
		tr.Base = script(status(200))
		resp := roundTrip(t, tr, get(t))
		require.Equal(t, 200, resp.StatusCode)
		readAll(t, resp)
	})
}

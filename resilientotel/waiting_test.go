package resilientotel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// T12: gauges have the calls that wait now, by cause, and the limit of each quota beside its
// remaining requests.
func TestWaitingCallsAndQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := []string{"X-RateLimit-Limit", "20", "X-RateLimit-Remaining", "2", "X-RateLimit-Reset", "60"}
		r, tr := record(), &resilienthttp.Transport{
			Base:   script(answer{status: 200, header: quota}, answer{status: 503, header: quota}),
			Policy: every(10 * time.Second), Breaker: never(), RateLimit: &resilienthttp.RateLimit{Limit: 0.2, Burst: 2},
		}
		rt := r.Wrap(tr)
		require.NoError(t, called(t, rt, get(t, t.Context(), "http://api.test/")))
		for range 3 { // one fails and waits before its retry, two wait in the queue
			inBackground(t, rt, "http://api.test/")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		all, state := r.metrics(t), tr.State().Scopes[0]
		near(t, 2, all["resilienthttp.client.waiting_calls{resilienthttp.scope=api.test resilienthttp.wait.cause=rate_limit}"])
		near(t, 1, all["resilienthttp.client.waiting_calls{resilienthttp.scope=api.test resilienthttp.wait.cause=backoff}"])
		require.Equal(t, []int{2, 1}, []int{state.Queued, state.RetryWaiting})
		require.Len(t, state.Quotas, 2)
		for _, q := range state.Quotas {
			series := "{resilienthttp.quota.bucket=" + q.Bucket + " resilienthttp.scope=api.test}"
			require.Contains(t, all, metricQuotaLimit+series)
			near(t, float64(q.Limit), all[metricQuotaLimit+series])
			near(t, float64(q.Remaining), all[metricQuotaRemaining+series])
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		near(t, 0, total(r.metrics(t), metricWaitingCalls))
	})
}

// T12: a call that waits for the circuit has its own cause, while it waits and afterwards, also if its caller cancels it.
func TestWaitingCalls_circuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		rt := r.Wrap(&resilienthttp.Transport{
			Base: script(answer{status: 503}), Policy: resilienthttp.Policy{MaxAttempts: -1},
			Breaker: &resilienthttp.Breaker{MinRequests: 1, Cooldown: time.Hour},
		})
		require.NoError(t, called(t, rt, get(t, t.Context(), "http://api.test/")))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		req := get(t, ctx, "http://api.test/")
		go func() {
			_, err := rt.RoundTrip(req)
			ended <- err
		}()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		const series = "{resilienthttp.scope=api.test resilienthttp.wait.cause="
		all := r.metrics(t)
		near(t, 1, all[metricWaitingCalls+series+"circuit}"])
		near(t, 0, all[metricWaitingCalls+series+"rate_limit}"])
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		all = r.metrics(t)
		near(t, 0, total(all, metricWaitingCalls))
		near(t, 3, all["resilienthttp.client.wait.duration"+series+"circuit}"])
		near(t, 3, total(all, "resilienthttp.client.wait.duration"))
	})
}

// Of several quotas with one name, the one with the largest used part is exported.
func TestScopeSum_quotas(t *testing.T) {
	for name, row := range map[string]struct {
		quotas []resilienthttp.QuotaStatus
		want   map[string]quotaSum
	}{
		"without a limit: none":       {[]resilienthttp.QuotaStatus{{Bucket: "a"}}, nil},
		"one: itself":                 {[]resilienthttp.QuotaStatus{{Bucket: "a", Limit: 9, Remaining: 7}}, map[string]quotaSum{"a": {9, 7}}},
		"two names: both":             {[]resilienthttp.QuotaStatus{{Bucket: "a", Limit: 9, Remaining: 7}, {Bucket: "b", Limit: 5}}, map[string]quotaSum{"a": {9, 7}, "b": {5, 0}}},
		"one name: the fuller, first": {[]resilienthttp.QuotaStatus{{Bucket: "a", Limit: 1000, Remaining: 60}, {Bucket: "a", Limit: 100, Remaining: 50}}, map[string]quotaSum{"a": {1000, 60}}},
		"one name: the fuller, last":  {[]resilienthttp.QuotaStatus{{Bucket: "a", Limit: 100, Remaining: 50}, {Bucket: "a", Limit: 1000, Remaining: 60}}, map[string]quotaSum{"a": {1000, 60}}},
	} {
		t.Run(name, func(t *testing.T) {
			buckets, sum := &names{limit: maxBuckets}, scopeSum{}
			sum.add(&resilienthttp.ScopeState{Quotas: row.quotas}, buckets)
			require.Equal(t, row.want, sum.quotas)
		})
	}
}

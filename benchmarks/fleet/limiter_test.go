package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimiter_headers(t *testing.T) {
	const limit, remaining, reset, after = "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After"
	for _, row := range []struct {
		name        string
		limit       Limit
		in, refused []string // headers
	}{
		{"a quota, all", Limit{Quota: 1}, []string{"Date", limit, remaining, reset}, []string{"Date", limit, remaining, reset, after}},
		{"a quota, on refusals", Limit{Quota: 1, Headers: HeadersOnRejections}, nil, []string{"Date", limit, remaining, reset, after}},
		{"a quota, Retry-After", Limit{Quota: 1, Headers: RetryAfterOnly}, nil, []string{after}},
		{"a quota, nothing", Limit{Quota: 1, Headers: NoHeaders}, nil, nil},
		{"a bucket, all", Limit{Rate: 0.001, Burst: 1}, nil, []string{after}},
		{"a bucket, nothing", Limit{Rate: 0.001, Burst: 1, Headers: NoHeaders}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLimiter(row.limit)
			for i, want := range [][]string{row.in, row.refused} {
				header, ok := l.admit(Epoch())
				require.Equal(t, i == 0, ok)
				var names []string
				for name := range header {
					names = append(names, name)
				}
				require.ElementsMatch(t, want, names)
			}
		})
	}
}

func TestLimiter_permittedRequests(t *testing.T) {
	for _, row := range []struct {
		name  string
		limit Limit
		want  int // in ten seconds, at 100 requests per second
	}{
		{"all", Limit{}, 1000},
		{"a quota by the second", Limit{Quota: 30}, 300},
		{"a quota in a wider window", Limit{Quota: 30, Window: 5 * time.Second}, 60},
		{"a bucket", Limit{Rate: 20, Burst: 10}, 209},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLimiter(row.limit)
			in := 0
			for i := range 1000 {
				if _, ok := l.admit(Epoch().Add(time.Duration(i) * 10 * time.Millisecond)); ok {
					in++
				}
			}
			require.Equal(t, row.want, in)
		})
	}
	require.InDelta(t, 300, Limit{Quota: 30}.granted(10*time.Second), 1e-9)
	require.InDelta(t, 60, Limit{Quota: 30, Window: 5 * time.Second}.granted(10*time.Second), 1e-9)
	require.InDelta(t, 210, Limit{Rate: 20, Burst: 10}.granted(10*time.Second), 1e-9)
}

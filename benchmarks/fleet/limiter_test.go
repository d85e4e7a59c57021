package fleet

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// reply is the result of a request to the model.
type reply struct {
	status int // 0: none
	header http.Header
	err    error
	took   time.Duration
}

func get(ctx context.Context, s *server) reply {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server.model/", http.NoBody)
	if err != nil {
		return reply{err: err}
	}
	start := time.Now()
	resp, err := s.RoundTrip(req)
	r := reply{err: err, took: time.Since(start)}
	if resp != nil {
		r.status, r.header = resp.StatusCode, resp.Header
	}
	return r
}

// crowd sends n requests at the same instant, in order, and waits for all responses.
func crowd(ctx context.Context, s *server, n int) []reply {
	replies := make([]reply, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { replies[i] = get(ctx, s) })
		synctest.Wait() // until it is in the queue
	}
	group.Wait()
	return replies
}

// inBubble runs f with a server that starts at a whole second of this century.
func inBubble(t *testing.T, scenario Scenario, f func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Until(Epoch()))
		f(t, newServer(scenario, time.Now(), Seed))
	})
}

func TestServer_isOneQueue(t *testing.T) {
	inBubble(t, Scenario{During: time.Minute}, func(t *testing.T, s *server) {
		// Twelve at a time, 10 ms each, in the order of arrival.
		for i, r := range crowd(t.Context(), s, 100) {
			require.Equal(t, http.StatusOK, r.status)
			require.Equal(t, time.Duration(1+i/defaultWorkers)*defaultService, r.took, "request %d", i)
		}
	})
}

func TestServer_rejectsWhenTheQueueIsFull(t *testing.T) {
	inBubble(t, Scenario{During: time.Minute}, func(t *testing.T, s *server) {
		replies := crowd(t.Context(), s, defaultWorkers+defaultQueue+2)
		for _, r := range replies[defaultWorkers+defaultQueue:] {
			require.Equal(t, http.StatusServiceUnavailable, r.status)
			require.Zero(t, r.took)
		}
		// Attempts time out after 500 ms; until then 50 × 12 requests are served.
		for i, r := range replies[:defaultWorkers+defaultQueue] {
			switch {
			case i < 49*defaultWorkers:
				require.Equal(t, http.StatusOK, r.status, "request %d", i)
			case i >= 50*defaultWorkers:
				require.Zero(t, r.status, "request %d", i)
				require.ErrorAs(t, r.err, new(timeoutError))
				require.Equal(t, defaultTimeout, r.took)
			}
		}
	})
}

func TestServer_finishesWorkOfClientsThatLeft(t *testing.T) {
	inBubble(t, Scenario{During: time.Minute}, func(t *testing.T, s *server) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		for _, r := range crowd(ctx, s, 10*defaultWorkers) {
			require.ErrorIs(t, r.err, context.DeadlineExceeded)
			require.Equal(t, 5*time.Millisecond, r.took)
		}
		// Their clients have left, but a new request waits until they are done.
		require.Equal(t, 10*defaultService-5*time.Millisecond+defaultService, get(t.Context(), s).took)
		require.Equal(t, 10*defaultWorkers+1, s.load.total())
	})
}

func TestServer_brownout(t *testing.T) {
	inBubble(t, Scenario{
		Before: time.Second, During: time.Second, After: time.Second,
		Server: Server{Staff: []Staff{{Workers: defaultWorkers / 2}}},
	}, func(t *testing.T, s *server) {
		last := func() time.Duration { return crowd(t.Context(), s, defaultWorkers)[defaultWorkers-1].took }
		require.Equal(t, defaultService, last())
		<-time.After(time.Second)
		require.Equal(t, 2*defaultService, last(), "half of the workers")
		<-time.After(time.Second)
		require.Equal(t, defaultService, last(), "all of them again")
	})
}

func TestServer_outage(t *testing.T) {
	inBubble(t, Scenario{
		Before: time.Second, During: time.Second,
		Server: Server{Faults: []Fault{{Response: Response{Status: http.StatusServiceUnavailable}}}},
	}, func(t *testing.T, s *server) {
		require.Equal(t, http.StatusOK, get(t.Context(), s).status)
		<-time.After(time.Second)
		r := get(t.Context(), s)
		require.Equal(t, http.StatusServiceUnavailable, r.status)
		require.Zero(t, r.took)
	})
}

func TestServer_quota(t *testing.T) {
	inBubble(t, Scenario{During: time.Minute, Server: Server{Limit: Limit{Quota: 3}}}, func(t *testing.T, s *server) {
		for range 2 {
			replies := crowd(t.Context(), s, 4)
			for i, r := range replies[:3] {
				require.Equal(t, http.StatusOK, r.status)
				require.Equal(t, string(rune('2'-i)), r.header.Get("X-RateLimit-Remaining"))
				require.Empty(t, r.header.Get("Retry-After"))
			}
			require.Equal(t, http.StatusTooManyRequests, replies[3].status)
			require.Equal(t, "1", replies[3].header.Get("Retry-After"))
			<-time.After(time.Second) // the next window
		}
		require.Equal(t, 2, s.limited.total())
		require.Equal(t, 6, s.taken.total())
	})
}

func TestServer_tail(t *testing.T) {
	inBubble(t, Scenario{During: time.Minute, Server: Server{
		Workers: -1, Service: 20 * time.Millisecond, AttemptTimeout: -1,
		Faults: []Fault{{Share: 0.05, Response: Response{Status: http.StatusOK, After: time.Second}}},
	}}, func(t *testing.T, s *server) {
		const n = 2000
		slow := 0
		for _, r := range crowd(t.Context(), s, n) {
			require.Equal(t, http.StatusOK, r.status, "attempts of the tail scenario have no timeout")
			if r.took == time.Second {
				slow++
			} else {
				require.Equal(t, 20*time.Millisecond, r.took)
			}
		}
		require.InDelta(t, 0.05*n, slow, 40, "four standard deviations")
	})
}

func TestServer_closesBodies(t *testing.T) {
	inBubble(t, Scenario{During: time.Minute}, func(t *testing.T, s *server) {
		body := &closed{Reader: strings.NewReader("payload")}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server.model/", body)
		require.NoError(t, err)
		_, err = s.RoundTrip(req)
		require.NoError(t, err)
		require.True(t, body.closed)
		require.Zero(t, body.Len(), "read to the end")
	})
}

type closed struct {
	*strings.Reader
	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}

var _ io.ReadCloser = (*closed)(nil)

package fleet

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
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
				require.ElementsMatch(t, want, slices.Collect(maps.Keys(header)))
			}
		})
	}
}

// reply is the result of a request to the model.
type reply struct {
	status int // 0: none
	header http.Header
	err    error
	took   time.Duration
}

func get(ctx context.Context, s *server, path string) reply {
	start := time.Now()
	resp, err := s.RoundTrip(request(ctx, http.MethodGet, path))
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
		group.Go(func() { replies[i] = get(ctx, s, "/") })
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
		require.Equal(t, 10*defaultService-5*time.Millisecond+defaultService, get(t.Context(), s, "/").took)
		require.Equal(t, 10*defaultWorkers+1, s.load.total())
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

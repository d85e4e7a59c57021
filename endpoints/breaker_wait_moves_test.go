package endpoints_test

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

type blocks struct {
	once   sync.Once
	closed chan struct{}
}

func (b *blocks) Read([]byte) (int, error) { <-b.closed; return 0, io.EOF }
func (b *blocks) Close() error             { b.once.Do(func() { close(b.closed) }); return nil }

// 8. A retry that moves waits for the circuits of endpoints that the call has not tried, although the circuit of the first
// one is closed: b's opens while the response of a is drained.
func TestAttack_movesWaitsAlthoughAnotherIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, func(tr *endpoints.Transport) {
			tr.Transport.Breaker = &resilienthttp.Breaker{FailureRatio: 0.7, MinRequests: 2, Probes: 1, Cooldown: 5 * time.Second, MaxCooldown: 5 * time.Second}
		}, faulttest.Status(200), faulttest.Status(200))
		for range 10 {
			_, err := l.only(t.Context(), "a")
			require.NoError(t, err)
		}
		l.setDown("a.test", roundTripper(func(r *http.Request) (*http.Response, error) { // one failure
			l.setDown("a.test", nil)
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: &blocks{closed: make(chan struct{})}, Request: r}, nil
		}))
		l.setDown("b.test", refused)
		time.AfterFunc(50*time.Millisecond, func() {
			_, _ = l.only(t.Context(), "b")
			_, _ = l.only(t.Context(), "b")
		})
		begun := time.Now()
		resp, err := l.get("/")
		t.Log(resilienthttp.Explain(resp, err))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Less(t, time.Since(begun), 2*time.Second, "a is healthy and closed")
	})
}

package resilienthttp_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// TestStopBehindHedge is §4.7: Unwrap looks at the last attempt only, and a hedge may stand behind the one that stopped.
func TestStopBehindHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := newHedgeBase(copyOf{after: time.Hour})
		transport := hedging(base, -1, &resilienthttp.Hedge{Delay: 2 * time.Second})
		transport.Policy.AttemptTimeout = 3 * time.Second
		_, err := transport.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
		require.ErrorIs(t, err, resilienthttp.ErrAttemptTimeout)
		require.ErrorIs(t, err, resilienthttp.ErrMaxAttempts)
	})
}

// TestHandshakeEOF is §4.8 for handshakes that end in EOF or a reset; and an attempt timeout while dialling.
func TestHandshakeEOF(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"closed at once": func(net.Conn) {},
		"closed in the handshake": func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
		},
		"reset in the handshake": func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 10))
			_ = conn.(*net.TCPConn).SetLinger(0)
		},
	} {
		t.Run("§4.8 "+name, func(t *testing.T) {
			address, _ := rawServer(t, serve)
			require.Len(t, realPOST(t, &http.Transport{}, "https://"+address), 2)
		})
	}
	t.Run("§4.8 attempt timeout in the handshake", func(t *testing.T) {
		address, _ := rawServer(t, func(conn net.Conn) {
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, conn)
		})
		transport := unkeyed(bareTransport(&http.Transport{}, 2))
		transport.Policy.AttemptTimeout = 50 * time.Millisecond
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address, strings.NewReader("x"))
		require.Len(t, tripped(t, transport, req), 2)
	})
}

// TestRetryAfterOfClassified is §4.11 for the Retry-After of a response that only Classify makes a failure.
func TestRetryAfterOfClassified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := bareTransport(onceThen(202, "Retry-After", "5"), 2)
		transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
			if a.Response != nil && a.Response.StatusCode == http.StatusAccepted {
				return resilienthttp.VerdictThrottled
			}
			return resilienthttp.VerdictDefault
		}
		attempts := tripped(t, transport, newCall(t.Context(), t, http.MethodGet, ""))
		require.GreaterOrEqual(t, attempts[0].Wait, 5*time.Second)
	})
}

// TestInnerRefusalAndOuterBreaker is §4.15: an inner gate's refusal is no failure of the server.
func TestInnerRefusalAndOuterBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := bareTransport(puppetStatus(500), 1)
		inner.Breaker = &resilienthttp.Breaker{MinRequests: 1}
		tripped(t, inner, newCall(t.Context(), t, http.MethodGet, ""))
		outer := bareTransport(inner, 1)
		outer.Breaker = &resilienthttp.Breaker{MinRequests: 1}
		_, err := outer.RoundTrip(newCall(t.Context(), t, http.MethodGet, ""))
		require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
		require.Equal(t, resilienthttp.StateClosed, outer.Breaker.State("api.test"))
	})
}

// TestSchemeMismatch: http.Client makes ErrSchemeMismatch only of a bare RecordHeaderError.
func TestSchemeMismatch(t *testing.T) {
	server := faulttest.New(t, nil)
	_, err := (&http.Client{Transport: bareTransport(&http.Transport{}, 2)}).Get("https" + strings.TrimPrefix(server.URL, "http"))
	require.ErrorIs(t, err, http.ErrSchemeMismatch)
	server.AssertRequests(t, 0)
}

// TestOwnershipOfTokenFetch is §4.20 for ownership on the way to what Base asks, for a token say.
func TestOwnershipOfTokenFetch(t *testing.T) {
	var told atomic.Value
	tokens := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
		told.Store(req.Header.Get(ownerField))
		return puppetAnswer(req, 200), nil
	}), 5)
	outer := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
		resp, err := tokens.RoundTrip(newCall(req.Context(), t, http.MethodPost, "grant"))
		if err != nil {
			return nil, err
		}
		_ = resp.Body.Close()
		return puppetAnswer(req, 200), nil
	}), 3)
	outer.OwnsRetries = true
	tripped(t, outer, newCall(t.Context(), t, http.MethodGet, ""))
	require.Equal(t, "caller", told.Load())
}

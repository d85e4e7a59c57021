package endpoints_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// N3: the first visit of an endpoint may be its probe, although it is not the first attempt of the call.
// Otherwise a client with few calls would never notice that the second endpoint works again.
func TestTransport_probesSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.OK("a"), faulttest.OK("b"))
		l.setDown("a.test", refused)
		l.setDown("b.test", refused)
		load{rate: 50, length: 10 * time.Second, method: http.MethodGet, deadline: time.Second}.run(t, l, "http://a.test/x", nil)
		for _, s := range l.Transport.Transport.State().Scopes {
			require.NotEqual(t, resilienthttp.StateClosed, s.Breaker.State, s.Scope)
		}
		l.setDown("b.test", nil)
		for range 3 {
			time.Sleep(10 * time.Second)
			resp, err := l.get("/x")
			require.NoError(t, err)
			require.Equal(t, "a b", visited(resp, err))
		}
	})
}

// N4: a call counts at the endpoint that responded, also if that was a second attempt.
func TestTransport_countsAtWinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var scope string
		l := newList(t, nil, faulttest.Hang, faulttest.OK("b"))
		l.Transport.Transport.Trace = &resilienthttp.Trace{CallDone: func(c *resilienthttp.Call) { scope = c.Scope }}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.test/x", http.NoBody)
		require.NoError(t, err)
		resp, err := l.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "b.test#b", scope)
		scopes := l.Transport.Transport.State().Scopes
		require.Zero(t, scopes[0].Responses.Calls)
		require.Equal(t, 1, scopes[1].Responses.Calls)
	})
}

// N4: all log records name the scope of the endpoint, so that a filter finds them.
func TestTransport_logsScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := newList(t, nil, faulttest.OK("a"), faulttest.Status(http.StatusServiceUnavailable))
		l.setDown("a.test", refused)
		l.Transport.Transport.Trace = resilienthttp.LogTrace(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		_, err := l.get("/x")
		require.Error(t, err)
		scopes := map[string]map[string]bool{}
		for line := range strings.Lines(log.String()) {
			var record struct{ Event, Scope string }
			require.NoError(t, json.Unmarshal([]byte(line), &record))
			if scopes[record.Event] == nil {
				scopes[record.Event] = map[string]bool{}
			}
			scopes[record.Event][record.Scope] = true
		}
		require.Equal(t, map[string]bool{"a.test#a": true, "b.test#b": true}, scopes["attempt_failed"])
		for event, of := range scopes {
			for scope := range of {
				require.Contains(t, scope, "#", event)
			}
		}
		require.Contains(t, scopes, "retry_scheduled")
	})
}

// A 409 while the server may be at work is about this endpoint: the retry stays.
func TestTransport_conflictStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, func(tr *endpoints.Transport) { tr.SharedKeys = true }, faulttest.OK("a"),
			faulttest.Sequence(faulttest.Status(http.StatusConflict), faulttest.OK("b")))
		l.setDown("a.test", reset)
		resp, err := l.post("/x")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "a b b", visited(resp, err))
	})
}

// N5: the quota is that of the endpoint's key, whatever Authorization the callers have set.
func TestTransport_quotaOfEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := &faulttest.Quota{Limit: 1, Window: time.Hour, Dialect: faulttest.OpenAI, KeyFunc: faulttest.Credential}
		l := newList(t, keyPool, quota)
		for _, caller := range []string{"x", "y"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.test/v1/chat", http.NoBody)
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+caller)
			resp, err := l.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		_, rejected := quota.Counts()
		require.Zero(t, rejected)
		l.servers["a.test"].AssertRequests(t, 2)
	})
}

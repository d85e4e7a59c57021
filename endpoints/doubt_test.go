package endpoints_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// §4.18a, N1: a POST that net/http has sent again by itself may be done, whatever the repetition gets. So it stays.
func TestTransport_sentAgainByNetHTTP(t *testing.T) {
	for _, row := range []struct {
		name   string
		body   string
		answer faulttest.Reply // to the repetition
	}{
		{"429", "{}", faulttest.Reply{Status: 429}},
		{"429, no body", "", faulttest.Reply{Status: 429}},
		{"503 with Retry-After", "{}", faulttest.Reply{Status: 503, RetryAfter: time.Second}},
		{"503 with Retry-After, no body", "", faulttest.Reply{Status: 503, RetryAfter: time.Second}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			hangUp := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // the work is done
				conn, _, err := http.NewResponseController(w).Hijack()
				if assert.NoError(t, err) {
					assert.NoError(t, conn.Close())
				}
			})
			l := newList(t, nil, faulttest.Sequence(faulttest.OK("warm"), hangUp, row.answer, faulttest.OK("a")), faulttest.OK("b"))
			_, err := l.get("/x")
			require.NoError(t, err)
			synctest.Wait() // the connection is idle, and reused
			resp, err := l.do(http.MethodPost, "/x", row.body)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "a a", visited(resp, err), resilienthttp.Explain(resp, err))
			l.servers["b.test"].AssertRequests(t, 0)
		})
	}
}

// §4.18a: a redirect frees no POST that may be done, also if a hedge left it in doubt.
func TestTransport_redirectKeepsDoubt(t *testing.T) {
	for _, row := range []struct {
		name  string
		first http.RoundTripper // of the two attempts of the first call: it leaves the doubt
		hedge *resilienthttp.Hedge
	}{
		{"500", answers(500, nil), nil},
		{"reset", reset, nil},
		{"a hedge without a response", roundTripper(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answers(307, http.Header{"Location": {"/moved"}}).RoundTrip(req)
		}), &resilienthttp.Hedge{Delay: 500 * time.Millisecond}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newList(t, func(tr *endpoints.Transport) { tr.Transport.Hedge = row.hedge }, faulttest.OK("a"), faulttest.OK("b"))
			var sent, moved atomic.Int32
			l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
				switch {
				case req.URL.Path == "/moved" && moved.Add(1) == 1:
					return answers(503, http.Header{"Retry-After": {"1"}}).RoundTrip(req)
				case req.URL.Path == "/moved":
					return answers(200, nil).RoundTrip(req)
				case sent.Add(1) == 1:
					return row.first.RoundTrip(req)
				case row.hedge != nil:
					return hangs.RoundTrip(req)
				}
				return answers(307, http.Header{"Location": {"/moved"}}).RoundTrip(req)
			}))
			resp, err := l.post("/x")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "a a", visited(resp, err), resilienthttp.Explain(resp, err))
			require.Equal(t, int32(2), sent.Load(), "the first call leaves a doubt")
			l.servers["b.test"].AssertRequests(t, 0)
		})
	}
}

// §4.18a: a and b do not know each other's keys. A redirect from b, which may have done the work, leads a POST nowhere else, and what
// another server then does for a PUT does not end the doubt.
func TestTransport_redirectInDoubt(t *testing.T) {
	for _, row := range []struct {
		name, method, to string
		shared           bool
		follows, inDoubt bool
	}{
		{"POST to b", http.MethodPost, "http://b.test/api/new", false, true, false},
		{"POST to a", http.MethodPost, "http://a.test/v1/new", false, false, true},
		{"POST to a, which shares the keys", http.MethodPost, "http://a.test/v1/new", true, true, false},
		{"POST to a, outside of the endpoint", http.MethodPost, "http://a.test/new", false, false, true},
		{"POST to b, outside of the endpoint", http.MethodPost, "http://b.test/new", false, true, false},
		{"PUT to b", http.MethodPut, "http://b.test/api/new", false, true, false},
		{"PUT to a", http.MethodPut, "http://a.test/v1/new", false, true, true},
		{"PUT to a, outside of the endpoint", http.MethodPut, "http://a.test/new", false, true, true},
		{"PUT to b, outside of the endpoint", http.MethodPut, "http://b.test/new", false, true, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			followed, broken := false, false
			base := roundTripper(func(req *http.Request) (*http.Response, error) {
				switch {
				case req.URL.Path == "/v1/old":
					return refused.RoundTrip(req)
				case req.URL.Path != "/api/old":
					followed = true
					return answers(200, nil).RoundTrip(req)
				case !broken:
					broken = true
					return answers(500, nil).RoundTrip(req)
				}
				return answers(307, http.Header{"Location": {row.to}}).RoundTrip(req)
			})
			tr := &endpoints.Transport{
				Endpoints:  []endpoints.Endpoint{{Name: "a", URL: parse(t, "http://a.test/v1")}, {Name: "b", URL: parse(t, "http://b.test/api")}},
				Transport:  &resilienthttp.Transport{Base: base},
				SharedKeys: row.shared,
			}
			resp, err := send(t, tr, row.method, "http://a.test/v1/old", "{}")
			assert.Equal(t, row.follows, followed)
			assert.Equal(t, row.follows, err == nil)
			assert.Equal(t, row.inDoubt, resilienthttp.InDoubt(resp, err), "%v", err)
		})
	}
}

// §4.18a: a hedge without a response binds a POST to its endpoint, also if its error is no reason for a retry.
func TestTransport_hedgeInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, func(tr *endpoints.Transport) {
			tr.Transport.Hedge = &resilienthttp.Hedge{Delay: time.Second}
			tr.Transport.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
				if a.Err != nil {
					return resilienthttp.VerdictPermanent
				}
				return resilienthttp.VerdictDefault
			}
		}, faulttest.OK("a"), faulttest.OK("b"))
		var sent atomic.Int32
		l.setDown("a.test", roundTripper(func(req *http.Request) (*http.Response, error) {
			switch sent.Add(1) {
			case 1:
				time.Sleep(2 * time.Second)
				return answers(503, http.Header{"Retry-After": {"1"}}).RoundTrip(req)
			case 2:
				return reset.RoundTrip(req)
			}
			return answers(200, nil).RoundTrip(req)
		}))
		resp, err := l.post("/x")
		require.NoError(t, err)
		require.Equal(t, "a a a", visited(resp, err), resilienthttp.Explain(resp, err))
	})
}

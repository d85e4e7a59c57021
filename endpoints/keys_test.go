package endpoints_test

import (
	"net/http"
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

// N5: two keys of one API, each with a quota. When the first is exhausted, calls use the second at
// once. No key gets more than one 429 in a window, and both quotas are used up.
func TestTransport_keyPool(t *testing.T) {
	for _, row := range []struct {
		name    string
		dialect faulttest.Dialect
		limit   int
		method  string
	}{
		{"OpenAI's headers, POST", faulttest.OpenAI, 100, http.MethodPost},
		{"OpenAI's headers, GET", faulttest.OpenAI, 100, http.MethodGet},
		{"IETF's headers, POST", faulttest.IETF, 100, http.MethodPost},
		{"Retry-After only, POST", faulttest.NoHeaders, 100, http.MethodPost},
		{"a quota of ten", faulttest.OpenAI, 10, http.MethodPost},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			quota := &faulttest.Quota{Limit: row.limit, Window: time.Minute, Dialect: row.dialect, KeyFunc: faulttest.Credential,
				Next: faulttest.Reply{Body: "ok", Delay: 200 * time.Millisecond}}
			l := newList(t, keyPool, quota)
			if row.dialect == faulttest.NoHeaders {
				quota.RetryAfterFormat = faulttest.Seconds
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) // a window begins
			const windows = 3
			// a load of 1.5 of the first key's quota
			all := load{rate: 1.5 * float64(row.limit) / 60, length: windows * time.Minute, method: row.method, deadline: 30 * time.Second}.
				run(t, l, "http://a.test/v1/chat", nil)
			accepted, rejected := quota.Counts()
			t.Log("accepted", accepted, "rejected", rejected, "calls", len(all))
			assert.InDelta(t, 1, share(all, succeeded), .01)
			assert.LessOrEqual(t, rejected, 2*windows)
			assert.LessOrEqual(t, p99(all), time.Second, "no call waits for a window")
			used := map[string]int{}
			for _, q := range l.servers["a.test"].Requests() {
				used[q.Header.Get("Authorization")]++
			}
			assert.Len(t, used, 2)
			assert.GreaterOrEqual(t, used["Bearer one"], windows*row.limit*8/10, "the first key is used first")
		})
	}
}

// keyPool makes the endpoint two keys of one API.
func keyPool(tr *endpoints.Transport) {
	api := tr.Endpoints[0].URL
	tr.Endpoints = []endpoints.Endpoint{
		{Name: "one", URL: api, Header: http.Header{"authorization": {"Bearer one"}}},
		{Name: "two", URL: api, Header: http.Header{"Authorization": {"Bearer two"}}},
	}
}

// N5: under more load than both quotas, both are used up.
func TestTransport_keyPoolOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := &faulttest.Quota{Limit: 60, Window: time.Minute, Dialect: faulttest.OpenAI, KeyFunc: faulttest.Credential}
		l := newList(t, keyPool, quota)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		all := load{rate: 4, length: 3 * time.Minute, method: http.MethodPost, deadline: 10 * time.Second}.run(t, l, "http://a.test/v1/chat", nil)
		accepted, rejected := quota.Counts()
		t.Log("accepted", accepted, "rejected", rejected, "calls", len(all))
		assert.GreaterOrEqual(t, accepted, 342, "95 % of two quotas in three windows")
		assert.LessOrEqual(t, rejected, 6)
	})
}

// What a key has made is found with the same key: a redirect below an endpoint's URL goes to that endpoint,
// also if others have the same URL.
func TestTransport_keyPoolRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		l := newList(t, keyPool, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Authorization")
			got = append(got, r.Method+" "+r.URL.Path+" "+key)
			switch {
			case key == "Bearer one":
				w.WriteHeader(http.StatusTooManyRequests)
			case r.URL.Path == "/jobs":
				http.Redirect(w, r, "/jobs/1", http.StatusSeeOther)
			}
		}))
		resp, err := l.post("/jobs")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, []string{"POST /jobs Bearer one", "POST /jobs Bearer two", "GET /jobs/1 Bearer two"}, got)
	})
}

// A redirect of one list says nothing about the endpoints of another.
func TestTransport_redirectOfAnotherList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, nil, faulttest.Redirect(307, "http://b.test/x"), faulttest.OK("b"))
		other := &endpoints.Transport{Endpoints: l.Endpoints[:1], Transport: l.Transport.Transport}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.test/x", http.NoBody)
		require.NoError(t, err)
		first, err := l.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, first.Body.Close())
		next := req.Clone(t.Context())
		next.Response = first
		resp, err := other.RoundTrip(next)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "a", visited(resp, err))
	})
}

// Two endpoints of one host have their own circuits, quotas and names.
func TestTransport_sameHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.Handle("/blue/", faulttest.Status(500))
		mux.Handle("/green/", faulttest.OK("green"))
		l := newList(t, nil, mux)
		l.Endpoints = []endpoints.Endpoint{{URL: parse(t, "http://a.test/blue")}, {URL: parse(t, "http://a.test/green/")}}
		for range 50 {
			resp, err := l.get("/x")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		resp, err := l.get("/x")
		require.NoError(t, err)
		require.Equal(t, "a.test/green", visited(resp, err))
		var scopes []string
		for _, s := range l.Transport.Transport.State().Scopes {
			scopes = append(scopes, s.Scope+" "+s.Breaker.State.String())
		}
		require.Equal(t, []string{"a.test/blue open", "a.test/green closed"}, scopes)
		require.Equal(t, resilienthttp.StateClosed, l.Transport.Transport.State().Scopes[1].Breaker.State)
	})
}

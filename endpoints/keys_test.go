package endpoints_test

import (
	"math"
	"net/http"
	"strconv"
	"sync"
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
		req := newRequest(t.Context(), t, http.MethodGet, "http://a.test/x", http.NoBody)
		first, err := closed(t, l, req)
		require.NoError(t, err)
		next := req.Clone(t.Context())
		next.Response = first
		resp, err := closed(t, other, next)
		require.NoError(t, err)
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

// tokenQuota is an API with a quota of tokens for each credential, and OpenAI's headers.
type tokenQuota struct {
	limit, cost float64 // tokens in a minute, and of a call
	window      bool    // a fixed window; else a token bucket
	silent      bool    // a rejection has no Retry-After
	takes       time.Duration

	mu       sync.Mutex
	tokens   map[string]float64
	at       map[string]time.Time
	served   int
	rejected int
}

func (q *tokenQuota) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := q.take(w.Header(), r.Host+r.Header.Get("Authorization"))
	if status == http.StatusOK {
		time.Sleep(q.takes)
	}
	w.WriteHeader(status)
}

// take takes the tokens of a call, and describes the quota.
func (q *tokenQuota) take(h http.Header, of string) (status int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, rate := time.Now(), q.limit/60
	last, known := q.at[of]
	switch {
	case !known || q.window && now.Sub(last) >= time.Minute:
		q.tokens[of], q.at[of] = q.limit, now
	case !q.window:
		q.tokens[of], q.at[of] = min(q.tokens[of]+now.Sub(last).Seconds()*rate, q.limit), now
	}
	status = http.StatusOK
	if q.tokens[of] < q.cost {
		status = http.StatusTooManyRequests
		q.rejected++
	} else {
		q.served++
		q.tokens[of] -= q.cost
	}
	full, enough := (q.limit-q.tokens[of])/rate, (q.cost-q.tokens[of])/rate
	if q.window {
		full = time.Until(q.at[of].Add(time.Minute)).Seconds()
		enough = full
	}
	h.Set("X-Ratelimit-Limit-Requests", "500")
	h.Set("X-Ratelimit-Remaining-Requests", "499")
	h.Set("X-Ratelimit-Reset-Requests", "120ms")
	h.Set("X-Ratelimit-Limit-Tokens", strconv.Itoa(int(q.limit)))
	h.Set("X-Ratelimit-Remaining-Tokens", strconv.Itoa(int(q.tokens[of])))
	h.Set("X-Ratelimit-Reset-Tokens", time.Duration(full*float64(time.Second)).Round(time.Millisecond).String())
	if status != http.StatusOK && !q.silent {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(enough))))
	}
	return status
}

// Row 66: 60 calls of 3,000 tokens in 30 s meet two keys and a region of 30,000 tokens a minute each. §4.17: each request
// takes its Cost in advance, and responses correct a cost that is too low or too high.
func TestTransport_tokens(t *testing.T) {
	const second = time.Second
	for _, row := range []struct {
		name     string
		api      *tokenQuota
		cost     float64 // 0: unknown
		served   int     // at least
		rejected int     // at most
	}{
		{"a bucket", &tokenQuota{takes: 2 * second}, 3000, 60, 0},
		{"a bucket, quick responses", &tokenQuota{takes: second / 5}, 3000, 60, 0},
		{"a bucket, slow responses: the first ones show nothing for 15 s", &tokenQuota{takes: 15 * second}, 3000, 60, 3},
		{"a bucket, rejections without Retry-After", &tokenQuota{takes: 2 * second, silent: true}, 3000, 60, 0},
		{"a window", &tokenQuota{takes: 2 * second, window: true}, 3000, 60, 0},
		{"a window, rejections without Retry-After", &tokenQuota{takes: 2 * second, window: true, silent: true}, 3000, 60, 0},
		{"a bucket, half of the cost", &tokenQuota{takes: 2 * second}, 1500, 60, 6},
		{"a window, half of the cost", &tokenQuota{takes: 2 * second, window: true}, 1500, 60, 6},
		{"a bucket, twice the cost", &tokenQuota{takes: 2 * second}, 6000, 60, 0},
		{"a window, twice the cost", &tokenQuota{takes: 2 * second, window: true}, 6000, 60, 0},
		{"a cost above the limit", &tokenQuota{takes: 2 * second}, 1e6, 60, 0},
		{"an unknown cost", &tokenQuota{takes: 2 * second}, 0, 40, 100},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			api := row.api
			api.limit, api.cost, api.tokens, api.at = 30_000, 3000, map[string]float64{}, map[string]time.Time{}
			l := newList(t, func(tr *endpoints.Transport) {
				keyPool(tr)
				region := tr.Endpoints[0]
				region.Name, region.URL = "region", parse(t, "http://b.test")
				tr.Endpoints = append(tr.Endpoints, region)
				if row.cost > 0 {
					tr.Transport.RateLimit = &resilienthttp.RateLimit{Cost: func(*http.Request) float64 { return row.cost }}
				}
			}, api, api)
			all := load{rate: 2, length: 30 * second, method: http.MethodPost, deadline: 90 * second}.run(t, l, "http://a.test/v1/chat", nil)
			t.Log(len(all), "calls,", api.served, "served,", api.rejected, "rejected by the servers")
			assert.Len(t, all, 60)
			assert.GreaterOrEqual(t, int(math.Round(share(all, succeeded)*60)), row.served)
			assert.LessOrEqual(t, api.rejected, row.rejected)
		})
	}
}

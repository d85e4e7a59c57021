package vendors

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

const secondaryLimit = `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`

// V1, V8: the wait after a secondary limit is what the response asks for, or a minute. The request has not been executed.
func TestGitHub_secondaryLimit(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, row := range []struct {
		name, method, host string
		status             int
		header             http.Header
		body               string
		attempts           int
		wait               time.Duration
		stop               error
		doubt              bool
	}{
		{name: "a minute", method: "GET", status: 403, body: secondaryLimit, attempts: 2, wait: 60 * s},
		{name: "a minute, with 429", method: "GET", status: 429, body: secondaryLimit, attempts: 2, wait: 60 * s},
		{name: "a POST was not executed", method: "POST", status: 403, body: secondaryLimit, attempts: 2, wait: 60 * s},
		{name: "a quota of an hour beside it", method: "POST", status: 403, body: secondaryLimit, attempts: 2, wait: 60 * s,
			header: http.Header{"X-Ratelimit-Limit": {"5000"}, "X-Ratelimit-Remaining": {"4999"}, "X-Ratelimit-Reset": {"1800"}}},
		{name: "an exhausted quota beside it", method: "POST", status: 403, body: secondaryLimit, attempts: 2, wait: 40 * s,
			header: http.Header{"X-Ratelimit-Limit": {"30"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"40"}}},
		{name: "Retry-After", method: "POST", status: 403, body: secondaryLimit, header: http.Header{"Retry-After": {"7"}}, attempts: 2, wait: 7 * s},
		{name: "a longer Retry-After", method: "POST", status: 403, body: secondaryLimit, header: http.Header{"Retry-After": {"90"}}, attempts: 1, wait: 90 * s, stop: resilienthttp.ErrRetryAfter},
		{name: "abuse detection", method: "POST", status: 403, body: `{"message":"You have triggered an abuse detection mechanism. Please wait a few minutes before you try again."}`, attempts: 2, wait: 60 * s},
		{name: "no permission", method: "POST", status: 403, body: `{"message":"Resource not accessible by integration"}`, attempts: 1},
		{name: "a 503 with the words of a limit", method: "POST", status: 503, body: secondaryLimit, attempts: 1, stop: resilienthttp.ErrNotIdempotent, doubt: true},
		{name: "another host", method: "POST", host: "example.test", status: 403, body: secondaryLimit, attempts: 1},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			host := "api.github.com"
			if row.host != "" {
				host = row.host
			}
			reply := faulttest.Reply{Status: row.status, Header: row.header, Body: row.body}
			began := time.Now()
			api, attempts := call(t.Context(), t, GitHub(), row.method, "http://"+host+"/repos/a/b/issues", faulttest.Sequence(reply, faulttest.OK("{}")))
			require.Len(t, attempts, row.attempts)
			require.Len(t, api.Requests(), row.attempts)
			assert.Equal(t, row.wait, attempts[0].RetryAfter)
			assert.Equal(t, row.stop, attempts[0].StopReason)
			last := attempts[len(attempts)-1]
			assert.Equal(t, row.doubt, resilienthttp.InDoubt(last.Response, nil))
			if row.attempts > 1 {
				assert.True(t, attempts[0].NotExecuted)
				assert.GreaterOrEqual(t, time.Since(began), row.wait)
				assert.LessOrEqual(t, time.Since(began), row.wait+row.wait/2)
			}
		})
	}
}

// gitHub is the API with a secondary limit: after 900 requests in a minute it rejects all for a minute.
type gitHub struct {
	mu           sync.Mutex
	recent       []time.Time // of the last minute
	blocked      time.Time   // until then
	served, into int         // requests into the block
}

func (g *gitHub) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(20 * time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	w.Header().Set("X-Ratelimit-Limit", "5000")
	w.Header().Set("X-Ratelimit-Remaining", "4000")
	w.Header().Set("X-Ratelimit-Reset", strconv.FormatInt(now.Add(30*time.Minute).Unix(), 10))
	for len(g.recent) > 0 && now.Sub(g.recent[0]) > time.Minute {
		g.recent = g.recent[1:]
	}
	if len(g.recent) >= 900 && now.After(g.blocked) {
		g.blocked = now.Add(time.Minute)
	}
	if now.Before(g.blocked) {
		g.into++
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(secondaryLimit))
		return
	}
	g.recent = append(g.recent, now)
	g.served++
}

// §4.17: in three minutes, 20 workers of a credential send few requests into the blocks of a secondary limit, and use all that is
// served. Before, they sent 13,680 at five calls a second each, and 177,300 without a pause.
func TestGitHub_workers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		method   string
		routes   int
		deadline time.Duration // of a call; 0: none
		pause    time.Duration // between two calls of a worker
		served   int           // at least; 2,700 are the most
	}{
		{"GET", "GET", 1, 0, 200 * time.Millisecond, 2500},
		{"POST", "POST", 1, 0, 200 * time.Millisecond, 2500},
		{"five routes", "POST", 5, 0, 200 * time.Millisecond, 2500},
		{"deadline shorter than the block", "POST", 1, 30 * time.Second, 200 * time.Millisecond, 1800},
		{"short deadline, five routes", "GET", 5, 5 * time.Second, 200 * time.Millisecond, 2500},
		{"without a pause", "POST", 1, 0, 0, 2500},
		{"without a pause, deadline shorter than the block", "GET", 1, 30 * time.Second, 0, 1800},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			served, into := workersAtGitHub(t, row.method, row.routes, row.deadline, row.pause)
			if served < row.served { // by chance the last wait of one run of a hundred ends too late for the third minute
				served, into = workersAtGitHub(t, row.method, row.routes, row.deadline, row.pause)
			}
			t.Logf("served %d, into the block %d", served, into)
			assert.LessOrEqual(t, into, 60)
			assert.GreaterOrEqual(t, served, row.served)
		})
	}
}

// workersAtGitHub has 20 workers send calls for three minutes. It returns what was served, and what was sent into the blocks.
func workersAtGitHub(t *testing.T, method string, routes int, deadline, pause time.Duration) (served, into int) {
	t.Helper()
	server := &gitHub{}
	api := &faulttest.Server{Script: server, InMemory: true, Host: "api.github.com"}
	api.Start(t)
	tr := GitHub()
	tr.Base = api.Transport()
	over, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			for i := 0; over.Err() == nil; i++ {
				url := fmt.Sprintf("http://api.github.com/r%d/%d", n%routes, i)
				if err := send(over, tr, deadline, request(t, method, url, strings.NewReader("{}"))); err != nil {
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(pause)
			}
		})
	}
	all.Wait()
	server.mu.Lock() // requests of the last calls may still be in the server
	defer server.mu.Unlock()
	return server.served, server.into
}

// send sends a request with a credential and a deadline.
func send(ctx context.Context, tr *resilienthttp.Transport, deadline time.Duration, req *http.Request) error {
	if deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline)
		defer cancel()
	}
	req.Header.Set("Authorization", "Bearer one")
	resp, err := tr.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

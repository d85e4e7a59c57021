package faulttest_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

func TestSequence(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, _ time.Duration, start func(http.Handler) *faulttest.Server) {
		script := faulttest.Sequence(faulttest.Status(503), nil, faulttest.Status(404))
		for range 2 { // each server has its own state
			srv := start(script)
			for _, want := range []int{503, 200, 404, 404} {
				assert.Equal(t, want, status(t, srv, http.MethodGet, "/"))
			}
		}
		assert.Equal(t, 200, status(t, start(faulttest.Sequence()), http.MethodGet, "/"))
		assert.Equal(t, 200, status(t, start(nil), http.MethodGet, "/"))
	})
}

// A cycle starts again after the last step, for each server and each key.
func TestCycle(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, _ time.Duration, start func(http.Handler) *faulttest.Server) {
		script := faulttest.Cycle(faulttest.Status(503), nil, faulttest.Status(404))
		for range 2 {
			srv := start(script)
			for _, want := range []int{503, 200, 404, 503, 200, 404, 503} {
				assert.Equal(t, want, status(t, srv, http.MethodGet, "/"))
			}
		}
		assert.Equal(t, 200, status(t, start(faulttest.Cycle()), http.MethodGet, "/"))
	})
	each := &faulttest.Steps{KeyFunc: faulttest.Credential, Loop: true, Handlers: []http.Handler{faulttest.Status(401), faulttest.OK("")}}
	srv := faulttest.New(t, each)
	for _, credential := range []string{"a", "b"} {
		for _, want := range []int{401, 200, 401} {
			assert.Equal(t, want, status(t, srv, http.MethodGet, "/", "Authorization", credential))
		}
	}
}

// Each concurrent call has its own sequence of steps.
func TestPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &faulttest.Server{Script: faulttest.PerKey(faulttest.Status(503), faulttest.Status(502), faulttest.OK("")), InMemory: true}
		srv.KeyHeader = "X-Key"
		srv.Start(t)
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				for _, want := range []int{503, 502, 200} {
					assert.Equal(t, want, status(t, srv, http.MethodPost, "/", "X-Key", fmt.Sprint("k", i)))
				}
			})
		}
		for _, path := range []string{"/a", "/b"} { // without a key, the path
			calls.Go(func() {
				for _, want := range []int{503, 502, 200} {
					assert.Equal(t, want, status(t, srv, http.MethodGet, path))
				}
			})
		}
		calls.Wait()
		srv.AssertKeys(t, 20) // POSTs and GETs
	})
}

func TestRule_Route(t *testing.T) {
	t.Parallel()
	srv := faulttest.New(t, faulttest.Script{
		nil,
		{Route: "POST /charges", Handler: faulttest.Status(201)},
		{Route: "GET /charges/{id}", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.PathValue("id"))
		})},
		{Route: "/v1/", Handler: faulttest.Script{{Route: "/v1/a", Handler: faulttest.Status(418)}}},
		{Route: "/nothing"},
	})
	for _, row := range []struct {
		method, path string
		status       int
		text, note   string
	}{
		{"POST", "/charges", 201, "", "201"},
		{"GET", "/charges/ch_1", 200, "ch_1", "200"},
		{"GET", "/charges", 200, "", "200 no rule"},
		{"PUT", "/v1/a", 418, "", "418"},
		{"PUT", "/v1/b", 200, "", "200 no rule"},
		{"PUT", "/nothing", 200, "", "200"},
		{"POST", "/charges/", 200, "", "200 no rule"},
	} {
		resp, text := answered(t, srv.Client(), row.method, srv.URL+row.path, "")
		assert.Equal(t, row.status, resp.StatusCode, row)
		assert.Equal(t, row.text, text, row)
		all := outcomes(&srv.Log)
		assert.Equal(t, row.note, all[len(all)-1], row)
	}
}

// An invalid route fails the test.
func TestRule_invalidRoute(t *testing.T) {
	t.Parallel()
	var fake fakeTB
	script := faulttest.Script{{Route: "GET  no slash"}}
	srv := faulttest.New(&fake, script)
	defer srv.Close()
	resp, text := answered(t, srv.Client(), http.MethodGet, srv.URL, "")
	assert.Equal(t, 500, resp.StatusCode)
	assert.Contains(t, text, "faulttest: Rule.Route: parsing \"GET  no slash\"")
	assert.Contains(t, fake.failures(), "faulttest: Rule.Route: parsing \"GET  no slash\"")

	w := httptest.NewRecorder()
	script.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Equal(t, 500, w.Code)
}

// An invalid Reply fails the test.
func TestReply_invalid(t *testing.T) {
	t.Parallel()
	for want, script := range map[string]http.Handler{
		"faulttest: Reply.Status: 99 is not the status of a final response":   faulttest.Status(99),
		"faulttest: Reply.Status: 103 is not the status of a final response":  faulttest.Status(103),
		"faulttest: Reply.Status: 1000 is not the status of a final response": &faulttest.Quota{Limit: -1, Status: 1000},
		"faulttest: Reply.Fault: Fault(9) is not a fault":                     faulttest.Silent + 1,
		"faulttest: Reply.Fault: Fault(-1) is not a fault":                    faulttest.NoFault - 1,
		"faulttest: Rule.Probability: NaN is not a ratio of at most 1":        faulttest.Script{{Probability: math.NaN()}},
		"faulttest: Rule.Probability: +Inf is not a ratio of at most 1":       faulttest.Script{{Probability: math.Inf(1)}},
		"faulttest: Rule.Probability: 30 is not a ratio of at most 1":         faulttest.Script{{Probability: 30}},
		"faulttest: Reply.RateLimits: Dialect(-1) is not a dialect":           faulttest.Throttled(-1, time.Second),
		"faulttest: Quota.Dialect: Dialect(14) is not a dialect":              &faulttest.Quota{Dialect: faulttest.NoHeaders + 1},
		"faulttest: Quota.RetryAfterFormat: 8 is not a format":                &faulttest.Quota{RetryAfterFormat: faulttest.NoRetryAfter + 1},
		"faulttest: Reply.RetryAfterFormat: -1 is not a format":               faulttest.Reply{RetryAfterFormat: -1},
	} {
		var fake fakeTB
		srv := faulttest.New(&fake, script)
		assert.Equal(t, 500, status(t, srv, http.MethodGet, "/"))
		srv.Close()
		assert.Equal(t, want, fake.failures())
	}
}

func TestRule_AfterAndUntil(t *testing.T) {
	for _, log := range []bool{true, false} {
		bubble.Run(t, fmt.Sprintf("log %v", log), func(t *testing.T) {
			script := faulttest.Script{
				{After: 10 * time.Second, Until: 40 * time.Second, Handler: faulttest.Status(503)},
				{After: time.Hour, Handler: faulttest.Status(410)},
			}
			var get func() int
			if log {
				srv := faulttest.NewInMemory(t, script)
				get = func() int { return status(t, srv, http.MethodGet, "/") }
			} else {
				get = func() int {
					w := httptest.NewRecorder()
					script.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					return w.Code
				}
			}
			begin := time.Now()
			for _, row := range []struct {
				at   time.Duration
				want int
			}{
				{0, 200},
				{10*time.Second - 1, 200},
				{10 * time.Second, 503},
				{40*time.Second - 1, 503},
				{40 * time.Second, 200},
				{time.Hour - 1, 200},
				{time.Hour, 410},
				{100 * time.Hour, 410},
			} {
				time.Sleep(time.Until(begin.Add(row.at)))
				assert.Equal(t, row.want, get(), row.at)
			}
		})
	}
}

func TestRule_MatchAndTimes(t *testing.T) {
	t.Parallel()
	srv := faulttest.New(t, faulttest.Script{
		{Match: func(r *http.Request) bool { return r.Header.Get("Authorization") == "" }, Times: 2, Handler: faulttest.Status(401)},
		{Times: 1, Handler: faulttest.Status(500)},
		{Times: -1, Handler: faulttest.Status(501)},
	})
	var got []int
	for _, credential := range []string{"", "a", "", "", "b"} {
		got = append(got, status(t, srv, http.MethodGet, "/", "Authorization", credential))
	}
	assert.Equal(t, []int{401, 500, 401, 200, 200}, got)
}

// The same seed selects the same requests, another seed others.
func TestRule_Probability(t *testing.T) {
	t.Parallel()
	const n = 2000
	draw := func(h http.Handler) (hits []int) {
		for i := range n {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.Code == 500 {
				hits = append(hits, i)
			}
		}
		return hits
	}
	script := func(probability float64, seed uint64) faulttest.Script {
		return faulttest.Script{{Probability: probability, Seed: seed, Handler: faulttest.Status(500)}}
	}
	one := script(0.1, 1)
	first := draw(new(faulttest.Log).Record(one))
	assert.InDelta(t, n/10, len(first), n/50)
	assert.Equal(t, first, draw(new(faulttest.Log).Record(one)), "another Log has its own state")
	assert.Equal(t, first, draw(one), "without a log")
	assert.NotEqual(t, first, draw(one), "which goes on")
	assert.NotEqual(t, first, draw(script(0.1, 2)))
	assert.Empty(t, draw(script(-1, 1)))
	assert.Len(t, draw(script(0, 1)), n)
	assert.Len(t, draw(script(1, 1)), n)

	// Chance draws only among what the conditions before it leave, Times counts
	// only what Chance has drawn.
	rare := faulttest.Script{{Route: "/a", Probability: 0.1, Seed: 1, Times: 3, Handler: faulttest.Status(500)}}
	var hits []int
	for i := range n {
		for _, path := range []string{"/b", "/a"} {
			w := httptest.NewRecorder()
			rare.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code == 500 {
				hits = append(hits, i)
			}
		}
	}
	assert.Equal(t, first[:3], hits)
}

// Handlers work on a server without a Log.
func TestHandlers_withoutLog(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.Handler{
		"sequence": faulttest.Sequence(faulttest.Status(503), faulttest.OK("")),
		"per key":  faulttest.PerKey(faulttest.Status(503), faulttest.OK("")),
		"script":   faulttest.Script{{Times: 1, Handler: faulttest.Status(503)}, {Handler: new(faulttest.Idempotent)}},
		"quota":    faulttest.Sequence(faulttest.Status(503), &faulttest.Quota{Limit: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(h)
			defer s.Close()
			var got []int
			for range 2 {
				resp, _ := answered(t, s.Client(), http.MethodPost, s.URL, "x", "Idempotency-Key", "k")
				got = append(got, resp.StatusCode)
			}
			assert.Equal(t, 503, got[0])
			assert.Less(t, got[1], 300)
		})
	}
}

// Counts are exact under concurrent requests.
func TestScript_stress(t *testing.T) {
	t.Parallel()
	quota := &faulttest.Quota{Limit: 50, Window: time.Hour, KeyFunc: faulttest.Credential}
	charges := new(faulttest.Idempotent)
	srv := faulttest.New(t, faulttest.Script{
		{Route: "/times", Times: 70, Handler: faulttest.Status(500)},
		{Route: "/quota", Handler: quota},
		{Route: "/charges", Handler: charges},
		{Route: "/steps", Handler: faulttest.Sequence(append(slices.Repeat([]http.Handler{faulttest.Status(500)}, 30), faulttest.OK(""))...)},
	})
	srv.Transport().MaxIdleConnsPerHost = 8
	var mu sync.Mutex
	count := map[string]int{}
	var workers sync.WaitGroup
	for i := range 8 {
		workers.Go(func() {
			for j := range 25 {
				for _, path := range []string{"/times", "/quota", "/charges", "/steps"} {
					code := status(t, srv, http.MethodPost, path, "Idempotency-Key", fmt.Sprint(j), "Authorization", fmt.Sprint(i%2))
					mu.Lock()
					count[fmt.Sprint(path, code)]++
					mu.Unlock()
					_ = srv.Transcript()
				}
			}
		})
	}
	workers.Wait()
	assert.Equal(t, 70, count["/times500"])
	assert.Equal(t, 100, count["/quota200"])
	assert.Equal(t, 100, count["/quota429"])
	accepted, rejected := quota.Counts()
	assert.Equal(t, []int{100, 100}, []int{accepted, rejected})
	assert.Equal(t, 200, count["/charges201"]+count["/charges409"])
	assert.Equal(t, 30, count["/steps500"])
	assert.Equal(t, 170, count["/steps200"])
	charges.AssertExactlyOnce(t, 25)
	srv.AssertRequests(t, 800)
	numbers := map[int]bool{}
	for _, q := range srv.Requests() {
		numbers[q.Number] = true
	}
	assert.Len(t, numbers, 800)
	assert.True(t, strings.HasSuffix(srv.Transcript(), "(700 earlier requests are not shown)\n"))
}

package faulttest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

func TestSequence(t *testing.T) {
	t.Parallel()
	onBothFronts(t, func(t *testing.T, _ time.Duration, start func(http.Handler) *faulttest.Server) {
		script := faulttest.Sequence(faulttest.Status(503), nil, faulttest.Status(404))
		for range 2 { // one script for two servers: each begins afresh
			srv := start(script)
			for _, want := range []int{503, 200, 404, 404} {
				assert.Equal(t, want, status(t, srv, http.MethodGet, "/"))
			}
		}
		assert.Equal(t, 200, status(t, start(faulttest.Sequence()), http.MethodGet, "/"))
		assert.Equal(t, 200, status(t, start(nil), http.MethodGet, "/"))
	})
}

// TestCycle: after the last step comes the first, for each server and each By.
func TestCycle(t *testing.T) {
	t.Parallel()
	onBothFronts(t, func(t *testing.T, _ time.Duration, start func(http.Handler) *faulttest.Server) {
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
	for _, who := range []string{"a", "b"} {
		for _, want := range []int{401, 200, 401} {
			assert.Equal(t, want, status(t, srv, http.MethodGet, "/", "Authorization", who))
		}
	}
}

// TestPerKey: concurrent calls each go through the steps by themselves.
func TestPerKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
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

func TestStepsBy(t *testing.T) {
	t.Parallel()
	steps := &faulttest.Steps{KeyFunc: faulttest.Credential, Handlers: []http.Handler{faulttest.Status(401), faulttest.OK("")}}
	srv := faulttest.New(t, steps)
	for _, who := range []string{"a", "b"} {
		assert.Equal(t, 401, status(t, srv, http.MethodGet, "/", "Authorization", who))
		assert.Equal(t, 200, status(t, srv, http.MethodGet, "/", "Authorization", who))
	}
}

func TestRoutes(t *testing.T) {
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
		resp, text, err := send(t, srv.Client(), row.method, srv.URL+row.path, "")
		require.NoError(t, err)
		assert.Equal(t, row.status, resp.StatusCode, row)
		assert.Equal(t, row.text, text, row)
		all := outcomes(&srv.Log)
		assert.Equal(t, row.note, all[len(all)-1], row)
	}
}

// TestBadRoute: a mistake in the test fails the test.
func TestBadRoute(t *testing.T) {
	t.Parallel()
	var fake fakeTB
	script := faulttest.Script{{Route: "GET  no slash"}}
	srv := faulttest.New(&fake, script)
	defer srv.Close()
	resp, text, err := send(t, srv.Client(), http.MethodGet, srv.URL, "")
	require.NoError(t, err)
	assert.Equal(t, 500, resp.StatusCode)
	assert.Contains(t, text, "faulttest: Rule.Route: parsing \"GET  no slash\"")
	assert.Contains(t, fake.said(), "faulttest: Rule.Route: parsing \"GET  no slash\"")

	w := httptest.NewRecorder()
	script.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Equal(t, 500, w.Code)
}

// TestBadReply: what cannot be answered is the test's mistake, and said to be.
func TestBadReply(t *testing.T) {
	t.Parallel()
	for want, script := range map[string]http.Handler{
		"faulttest: Reply.Status: 99 is not the status of an answer":   faulttest.Status(99),
		"faulttest: Reply.Status: 103 is not the status of an answer":  faulttest.Status(103),
		"faulttest: Reply.Status: 1000 is not the status of an answer": &faulttest.Quota{Limit: -1, Status: 1000},
		"faulttest: Reply.Fault: there is no Fault(8)":                 faulttest.Hang + 1,
		"faulttest: Reply.Fault: there is no Fault(-1)":                faulttest.NoFault - 1,
	} {
		var fake fakeTB
		srv := faulttest.New(&fake, script)
		assert.Equal(t, 500, status(t, srv, http.MethodGet, "/"))
		srv.Close()
		assert.Equal(t, want, fake.said())
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	for _, log := range []bool{true, false} {
		t.Run(fmt.Sprintf("log %v", log), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				script := faulttest.Script{
					{After: 10 * time.Second, Until: 40 * time.Second, Handler: faulttest.Status(503)},
					{After: time.Hour, Handler: faulttest.Status(410)},
				}
				var ask func() int
				if log {
					srv := faulttest.NewInMemory(t, script)
					ask = func() int { return status(t, srv, http.MethodGet, "/") }
				} else {
					ask = func() int {
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
					assert.Equal(t, row.want, ask(), row.at)
				}
			})
		})
	}
}

func TestPredicateAndTimes(t *testing.T) {
	t.Parallel()
	srv := faulttest.New(t, faulttest.Script{
		{Match: func(r *http.Request) bool { return r.Header.Get("Authorization") == "" }, Times: 2, Handler: faulttest.Status(401)},
		{Times: 1, Handler: faulttest.Status(500)},
		{Times: -1, Handler: faulttest.Status(501)},
	})
	var got []int
	for _, who := range []string{"", "a", "", "", "b"} {
		got = append(got, status(t, srv, http.MethodGet, "/", "Authorization", who))
	}
	assert.Equal(t, []int{401, 500, 401, 200, 200}, got)
}

// TestChance: a share, the same for a seed, another for another.
func TestChance(t *testing.T) {
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
	script := func(chance float64, seed uint64) faulttest.Script {
		return faulttest.Script{{Probability: chance, Seed: seed, Handler: faulttest.Status(500)}}
	}
	one := script(0.1, 1)
	first := draw(new(faulttest.Log).Record(one))
	assert.InDelta(t, n/10, len(first), n/50)
	assert.Equal(t, first, draw(new(faulttest.Log).Record(one)), "another log begins afresh")
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

// TestNoLog: scripts work on a server that records nothing.
func TestNoLog(t *testing.T) {
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
				resp, _, err := send(t, s.Client(), http.MethodPost, s.URL, "x", "Idempotency-Key", "k")
				require.NoError(t, err)
				got = append(got, resp.StatusCode)
			}
			assert.Equal(t, 503, got[0])
			assert.Less(t, got[1], 300)
		})
	}
}

// TestScriptStress: counts are exact under many goroutines.
func TestScriptStress(t *testing.T) {
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
	granted, refused := quota.Counts()
	assert.Equal(t, []int{100, 100}, []int{granted, refused})
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

package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/admission/internal/storetest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

func TestMemory_conforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) quotastore.Store { return new(quotastore.Memory) })
}

// ok returns a handler that answers 200.
func ok() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
}

// ask calls the handler with a request.
func ask(tb testing.TB, h http.Handler, change ...func(*http.Request)) *http.Response {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/", http.NoBody)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// asks asks n times.
func asks(tb testing.TB, h http.Handler, n int) {
	tb.Helper()
	for range n {
		ask(tb, h)
	}
}

func from(address string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = address }
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// sleep waits for d; in a bubble of testing/synctest the time is virtual.
func sleep(d time.Duration) {
	<-time.After(d)
}

// readLimit returns the values of the response's RateLimit field.
func readLimit(tb testing.TB, resp *http.Response) (remaining int, reset time.Duration) {
	tb.Helper()
	found := regexp.MustCompile(`^"[^"]*";r=(\d+);t=(\d+)$`).FindStringSubmatch(resp.Header.Get("RateLimit"))
	require.NotNil(tb, found, "RateLimit: %q", resp.Header.Get("RateLimit"))
	remaining, err := strconv.Atoi(found[1])
	require.NoError(tb, err)
	seconds, err := strconv.Atoi(found[2])
	require.NoError(tb, err)
	return remaining, time.Duration(seconds) * time.Second
}

type problemBody struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
}

func readProblem(tb testing.TB, resp *http.Response) problemBody {
	tb.Helper()
	require.Equal(tb, []string{"?0"}, resp.Header.Values("Request-Executed"), "A21: nothing was executed of a rejected request")
	require.Equal(tb, "application/problem+json", resp.Header.Get("Content-Type"))
	var p problemBody
	require.NoError(tb, json.NewDecoder(resp.Body).Decode(&p))
	require.Equal(tb, resp.StatusCode, p.Status)
	require.NotEmpty(tb, p.Title)
	return p
}

// A2, A3: the header fields of accepted and rejected requests.
func TestQuota_headerFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleep(30 * 365 * 24 * time.Hour)
		quota := &admission.Quota{Limit: 100, Legacy: true}
		h := quota.Handler(ok())
		first := ask(t, h)
		require.Equal(t, http.StatusOK, first.StatusCode)
		require.Empty(t, first.Header.Values("Request-Executed"), "A21: only a rejection has it")
		require.Equal(t, []string{`"default";q=100;w=60`}, first.Header.Values("RateLimit-Policy"))
		require.Equal(t, []string{`"default";r=99;t=1`}, first.Header.Values("RateLimit"))
		require.Equal(t, "100", first.Header.Get("X-RateLimit-Limit"))
		require.Equal(t, "99", first.Header.Get("X-RateLimit-Remaining"))
		require.Equal(t, strconv.FormatInt(time.Now().Unix()+1, 10), first.Header.Get("X-RateLimit-Reset"))
		require.Empty(t, first.Header.Get("Retry-After"))
		for range 98 {
			require.Equal(t, http.StatusOK, ask(t, h).StatusCode)
		}
		require.Equal(t, `"default";r=0;t=60`, ask(t, h).Header.Get("RateLimit"))

		rejected := ask(t, h)
		require.Equal(t, http.StatusTooManyRequests, rejected.StatusCode)
		problem := readProblem(t, rejected)
		require.Equal(t, "https://iana.org/assignments/http-problem-types#quota-exceeded", problem.Type)
		require.Equal(t, []string{"default"}, problem.Violated)
		require.Equal(t, `"default";q=100;w=60`, rejected.Header.Get("RateLimit-Policy"))
		require.Equal(t, `"default";r=0;t=1`, rejected.Header.Get("RateLimit"))
		require.Equal(t, "1", rejected.Header.Get("Retry-After"))
		require.Equal(t, "no-store", rejected.Header.Get("Cache-Control"))
		ms, err := strconv.Atoi(rejected.Header.Get("Retry-After-Ms"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, ms, 600)
		require.LessOrEqual(t, ms, 900)
	})
}

// A3: Retry-After has whole seconds, at minUnits 1 and t, at most half more, with jitter. A request is accepted after the
// shortest Retry-After-Ms.
func TestQuota_retryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sliding := range []bool{false, true} {
			quota := &admission.Quota{Limit: 2, Window: 100 * time.Second, Sliding: sliding}
			h := quota.Handler(ok())
			asks(t, h, 2)
			seen, soonest := map[string]bool{}, math.MaxInt
			for range 200 {
				rejected := ask(t, h)
				require.Equal(t, http.StatusTooManyRequests, rejected.StatusCode)
				_, reset := readLimit(t, rejected)
				seconds, err := strconv.Atoi(rejected.Header.Get("Retry-After"))
				require.NoError(t, err)
				ms, err := strconv.Atoi(rejected.Header.Get("Retry-After-Ms"))
				require.NoError(t, err)
				wait := time.Duration(seconds) * time.Second
				require.GreaterOrEqual(t, wait, reset)
				require.GreaterOrEqual(t, wait, time.Duration(ms)*time.Millisecond)
				require.LessOrEqual(t, wait, reset*3/2+time.Second)
				seen[rejected.Header.Get("Retry-After")] = true
				soonest = min(soonest, ms)
			}
			require.Greater(t, len(seen), 10)
			sleep(time.Duration(soonest) * time.Millisecond)
			require.Equal(t, http.StatusOK, ask(t, h).StatusCode)
		}
	})
}

// A3: a client that follows the fields, in any way that they allow, and shares its key with
// no other client, is never rejected.
func TestQuota_obedientClient(t *testing.T) {
	clients := map[string]func(remaining int, reset time.Duration) (requests int, wait time.Duration){
		"one after the other, until nothing remains": func(remaining int, reset time.Duration) (int, time.Duration) {
			if remaining > 0 {
				return 1, 0
			}
			return 1, reset
		},
		"all that remains at once, and waits for the reset": func(remaining int, reset time.Duration) (int, time.Duration) {
			if remaining > 0 {
				return remaining, 0
			}
			return 1, reset
		},
		"the whole quota at the reset": func(remaining int, reset time.Duration) (int, time.Duration) {
			return 0, reset // 0: the whole quota
		},
		"some now and then": func(remaining int, reset time.Duration) (int, time.Duration) {
			if remaining > 0 {
				return 1 + rand.IntN(remaining), rand.N(reset + 1)
			}
			return 1, reset
		},
	}
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		config := func() *admission.Quota {
			q := &admission.Quota{Limit: 1 + random.IntN(200), Window: time.Duration(1+random.IntN(100_000)) * time.Millisecond, Sliding: seed%2 == 0}
			if random.IntN(2) == 0 {
				q.Burst = 1 + random.IntN(300)
			}
			return q
		}()
		for name, client := range clients {
			bubble.Run(t, fmt.Sprintf("limit %d window %v burst %d sliding %v/%s", config.Limit, config.Window, config.Burst, config.Sliding, name), func(t *testing.T) {
				q := &admission.Quota{Limit: config.Limit, Window: config.Window, Burst: config.Burst, Sliding: config.Sliding}
				h := q.Handler(ok())
				last := ask(t, h)
				found := regexp.MustCompile(`;q=(\d+);w=(\d+)`).FindStringSubmatch(last.Header.Get("RateLimit-Policy"))
				require.NotNil(t, found)
				whole, err := strconv.Atoi(found[1])
				require.NoError(t, err)
				for range 20 {
					requests, wait := client(readLimit(t, last))
					sleep(wait)
					if requests == 0 {
						requests = whole
					}
					for range requests {
						last = ask(t, h)
						require.Equal(t, http.StatusOK, last.StatusCode, "%v", last.Header)
						sleep(rand.N(time.Millisecond))
					}
				}
			})
		}
	}
}

func TestQuota_policies(t *testing.T) {
	for _, row := range []struct {
		name         string
		quota        *admission.Quota
		policy, want string
	}{
		{"defaults", &admission.Quota{Limit: 100}, `"default";q=100;w=60`, `"default";r=99;t=1`},
		{"a name", &admission.Quota{Name: "per hour", Limit: 10, Window: time.Hour}, `"per hour";q=10;w=3600`, `"per hour";r=9;t=360`},
		{"a name with quotes", &admission.Quota{Name: `a"b\`, Limit: 10}, `"a\"b\\";q=10;w=60`, `"a\"b\\";r=9;t=6`},
		{"a small burst: the burst", &admission.Quota{Limit: 60, Burst: 5}, `"default";q=5;w=5`, `"default";r=4;t=1`},
		{"a large burst", &admission.Quota{Limit: 60, Burst: 500}, `"default";q=60;w=60`, `"default";r=499;t=1`},
		{"less than a second", &admission.Quota{Limit: 10, Window: 100 * time.Millisecond}, `"default";q=10;w=1`, `"default";r=9;t=1`},
		{"a second and a half", &admission.Quota{Limit: 10, Window: 1500 * time.Millisecond}, `"default";q=10;w=2`, `"default";r=9;t=1`},
		{"sliding", &admission.Quota{Limit: 10, Sliding: true, Burst: 3}, `"default";q=10;w=60`, `"default";r=9;t=60`},
		{"units", &admission.Quota{Limit: 10, Cost: func(*http.Request) int { return 4 }}, `"default";q=10;w=60;qu="units"`, `"default";r=6;t=24`},
		{"free of charge", &admission.Quota{Limit: 10, Cost: func(*http.Request) int { return -4 }}, `"default";q=10;w=60;qu="units"`, `"default";r=10;t=1`},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			resp := ask(t, row.quota.Handler(ok()))
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, row.policy, resp.Header.Get("RateLimit-Policy"))
			require.Equal(t, row.want, resp.Header.Get("RateLimit"))
		})
	}
}

// Each of two Quotas around each other adds its own fields.
func TestQuota_nested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := (&admission.Quota{Name: "day", Limit: 1000, Window: 24 * time.Hour}).Handler(
			(&admission.Quota{Name: "second", Limit: 2, Window: time.Second}).Handler(ok()))
		asks(t, h, 2)
		rejected := ask(t, h)
		require.Equal(t, http.StatusTooManyRequests, rejected.StatusCode)
		require.Equal(t, []string{`"day";q=1000;w=86400`, `"second";q=2;w=1`}, rejected.Header.Values("RateLimit-Policy"))
		require.Equal(t, []string{`"day";r=997;t=260`, `"second";r=0;t=1`}, rejected.Header.Values("RateLimit"))
		require.Equal(t, []string{"second"}, readProblem(t, rejected).Violated)
	})
}

// Validate returns the errors of a configuration, and each request is answered with 500.
func TestQuota_Validate(t *testing.T) {
	for name, q := range map[string]*admission.Quota{
		"no limit":          {},
		"a negative limit":  {Limit: -1},
		"a huge limit":      {Limit: math.MaxInt},
		"a negative window": {Limit: 1, Window: -time.Second},
		"a long window":     {Limit: 1, Window: 1 << 62},
		"60 ns":             {Limit: 100, Window: 60},
		"60 ns, unnamed":    {Limit: 100, Window: 60, Name: "naïve"},
		"a negative burst":  {Limit: 1, Burst: -1},
		"negative timeout":  {Limit: 1, Timeout: -time.Second},
		"timeout of 100 ns": {Limit: 1, Timeout: 100},
		"a long name":       {Limit: 1, Name: strings.Repeat("n", 65)},
		"an odd name":       {Limit: 1, Name: "naïve"},
		"a split name":      {Limit: 1, Name: "a\r\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, q.Validate(), "admission: Quota")
			resp := ask(t, q.Handler(ok()))
			require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
			require.Equal(t, "false", resp.Header.Get("X-Should-Retry"))
			require.Contains(t, readProblem(t, resp).Type, "#misconfigured")
			require.Error(t, errOf(q.Take(t.Context(), "k", 1)))
		})
	}
	require.NoError(t, (&admission.Quota{Limit: 1}).Validate())
	require.NoError(t, (&admission.Quota{Limit: 1, Window: time.Microsecond}).Validate())
	require.NoError(t, (&admission.Quota{Limit: 1, Timeout: time.Second}).Validate())
	require.EqualError(t, (&admission.Quota{Limit: 1, Timeout: -1}).Validate(), "admission: Quota.Timeout is -1ns, and must not be negative")
	require.EqualError(t, (&admission.Quota{Limit: 1, Timeout: 100}).Validate(), "admission: Quota.Timeout is 100ns, must be at least 1µs (was the unit forgotten?)")
	err := (&admission.Quota{Window: 60, Name: "naïve"}).Validate()
	require.EqualError(t, err, "admission: Quota.Limit is not set\nadmission: Quota.Window is 60ns, must be at least 1µs (was the unit forgotten?)\n"+
		`admission: Quota.Name "naïve" has others than visible ASCII characters and spaces`, "all of it")
}

// Without Key, the client's address is the key, and no header changes it.
// TestClientKey has the keys of other addresses.
func TestQuota_defaultKey(t *testing.T) {
	for _, row := range []struct {
		name string
		a, b string
		same bool
	}{
		{"the same address", "192.0.2.1:1", "192.0.2.1:2", true},
		{"another", "192.0.2.1:1", "192.0.2.2:1", false},
		{"IPv6 of one network", "[2001:db8:1:2:3:4:5:6]:1", "[2001:db8:1:2::1]:99", true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			h := (&admission.Quota{Limit: 1}).Handler(ok())
			require.Equal(t, http.StatusOK, ask(t, h, from(row.a)).StatusCode)
			want := http.StatusOK
			if row.same {
				want = http.StatusTooManyRequests
			}
			require.Equal(t, want, ask(t, h, from(row.b)).StatusCode)
		})
	}
	bubble.Run(t, "no header is trusted", func(t *testing.T) {
		h := (&admission.Quota{Limit: 1}).Handler(ok())
		ask(t, h)
		for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip"} {
			require.Equal(t, http.StatusTooManyRequests, ask(t, h, header(name, "198.51.100.7")).StatusCode)
		}
	})
}

func TestQuota_key(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []*admission.Event
		var admitted []string
		q := &admission.Quota{
			Limit: 1, Name: "q",
			Key: func(r *http.Request) (string, error) {
				switch key := r.Header.Get("X-Account"); key {
				case "fail":
					return "", errors.New("no such account")
				case "panic":
					panic("key")
				default:
					return key, nil
				}
			},
			Trace: &admission.Trace{
				Rejected: func(e *admission.Event) { c := *e; seen = append(seen, &c) },
				Admitted: func(e *admission.Event) { admitted = append(admitted, e.Quota+" "+e.Key+" "+e.Request.Method) },
			},
		}
		h := q.Handler(ok())
		require.Equal(t, http.StatusOK, ask(t, h, header("X-Account", "a")).StatusCode)
		require.Equal(t, http.StatusOK, ask(t, h, header("X-Account", "b")).StatusCode)
		require.Equal(t, []string{"q a GET", "q b GET"}, admitted)
		require.Equal(t, http.StatusTooManyRequests, ask(t, h, header("X-Account", "a")).StatusCode)
		failed := ask(t, h, header("X-Account", "fail"))
		require.Equal(t, http.StatusForbidden, failed.StatusCode)
		require.Contains(t, readProblem(t, failed).Type, "#key")
		require.PanicsWithValue(t, "key", func() { ask(t, h, header("X-Account", "panic")) })
		require.Equal(t, http.StatusOK, ask(t, h, header("X-Account", strings.Repeat("k", 1<<20))).StatusCode)
		require.Equal(t, http.StatusTooManyRequests, ask(t, h, header("X-Account", strings.Repeat("k", 1<<20))).StatusCode)
		require.Equal(t, admission.ReasonQuotaExceeded, seen[0].Reason)
		require.Equal(t, http.StatusTooManyRequests, seen[0].Status)
		require.GreaterOrEqual(t, seen[0].RetryAfter, time.Minute)
		require.NotNil(t, seen[0].Request)
		require.Equal(t, "q", seen[0].Quota)
		require.Equal(t, "a", seen[0].Key)
		require.Equal(t, admission.ReasonKeyError, seen[1].Reason)
		require.ErrorContains(t, seen[1].Err, "no such account")
	})
}

func TestQuota_cost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &admission.Quota{Limit: 10, Cost: func(r *http.Request) int {
			n, _ := strconv.Atoi(r.Header.Get("X-Cost"))
			return n
		}}
		h := q.Handler(ok())
		require.Equal(t, http.StatusOK, ask(t, h, header("X-Cost", "6")).StatusCode)
		require.Equal(t, http.StatusOK, ask(t, h, header("X-Cost", "0")).StatusCode)
		require.Equal(t, http.StatusOK, ask(t, h, header("X-Cost", "-1000")).StatusCode)
		rejected := ask(t, h, header("X-Cost", "5"))
		require.Equal(t, http.StatusTooManyRequests, rejected.StatusCode)
		require.Equal(t, `"default";r=4;t=6`, rejected.Header.Get("RateLimit"))
		require.Equal(t, http.StatusOK, ask(t, h, header("X-Cost", "4")).StatusCode)
		never := ask(t, h, header("X-Cost", "11"))
		require.Equal(t, http.StatusTooManyRequests, never.StatusCode)
		require.Equal(t, "false", never.Header.Get("X-Should-Retry"))
		require.Empty(t, never.Header.Get("Retry-After"))
		require.Equal(t, `"default";q=10;w=60;qu="units"`, never.Header.Get("RateLimit-Policy"))
		require.Equal(t, http.StatusTooManyRequests, ask(t, h, header("X-Cost", "9223372036854775807")).StatusCode)
	})
}

func TestQuota_Take(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &admission.Quota{Limit: 10, Window: 10 * time.Second}
		take := func(n int) admission.Result {
			result, err := q.Take(t.Context(), "k", n)
			require.NoError(t, err)
			return result
		}
		require.Equal(t, admission.Result{OK: true, Allowed: 7, Remaining: 3, ResetAfter: 7 * time.Second}, take(7))
		require.Equal(t, admission.Result{Remaining: 3, ResetAfter: 7 * time.Second, RetryAfter: 2 * time.Second}, take(5))
		require.Equal(t, admission.Result{OK: true, Remaining: 3, ResetAfter: 7 * time.Second}, take(0))
		require.Equal(t, admission.Result{OK: true, Allowed: -2, Remaining: 5, ResetAfter: 5 * time.Second}, take(-2))
		require.ErrorIs(t, errOf(q.Take(t.Context(), "k", 11)), quotastore.ErrExceedsBurst)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, errOf(q.Take(ctx, "k", 1)), context.Canceled)
	})
}

// A6: a replay returns its cost, also to a store and if its client has gone away. With an empty quota it is rejected like any
// request.
func TestQuota_replayReturnsCost(t *testing.T) {
	for i, store := range []quotastore.Store{nil, nil, new(quotastore.Memory), new(quotastore.Memory)} {
		sliding := i%2 == 1
		synctest.Test(t, func(t *testing.T) {
			q := &admission.Quota{Limit: 10, Window: 10 * time.Second, Sliding: sliding, Store: store, Cost: func(*http.Request) int { return 3 }}
			ctx, leave := context.WithCancel(t.Context())
			h := q.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.Header.Get("X-Do") {
				case "replay":
					w.Header().Set("Idempotency-Replayed", "true")
				case "replay without a client":
					w.Header().Set("Idempotency-Replayed", "true")
					leave()
				case "slow replay":
					w.Header().Set("Idempotency-Replayed", "true")
					sleep(20 * time.Second)
				case "false":
					w.Header().Set("Idempotency-Replayed", "false")
				case "panic":
					w.Header().Set("Idempotency-Replayed", "true")
					panic(http.ErrAbortHandler)
				}
			}))
			left := func() int {
				result, err := q.Take(t.Context(), "192.0.2.1", 0)
				require.NoError(t, err)
				return result.Remaining
			}
			for range 2 {
				require.Equal(t, http.StatusOK, ask(t, h, header("X-Do", "replay")).StatusCode)
			}
			ask(t, h, header("X-Do", "replay without a client"), func(r *http.Request) { *r = *r.WithContext(ctx) })
			require.Equal(t, 10, left())
			ask(t, h, header("X-Do", "false"))
			require.Equal(t, 7, left())
			require.Panics(t, func() { ask(t, h, header("X-Do", "panic")) })
			require.Equal(t, 4, left())
			ask(t, h)
			require.Equal(t, http.StatusTooManyRequests, ask(t, h, header("X-Do", "replay")).StatusCode)
			sleep(20 * time.Second)
			ask(t, h, header("X-Do", "slow replay"))
			require.Equal(t, 10, left(), "no more than Limit")
		})
	}
}

// A20: replays are not free without limit. In any window at most Limit units of a key are returned, whatever the store.
func TestQuota_replaysReturnAtMostLimit(t *testing.T) {
	const limit, window = 10, time.Minute
	replays := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Idempotency-Replayed", "true") })
	for _, row := range []struct {
		name  string
		store func() quotastore.Store // nil: none
	}{
		{"memory", nil},
		{"shared by two", func() quotastore.Store { return new(quotastore.Memory) }},
		{"a store that fails: the local bucket", func() quotastore.Store {
			return storeFunc(func(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) {
				return quotastore.Result{}, errors.New("down")
			})
		}},
	} {
		for _, sliding := range []bool{false, true} {
			for _, cost := range []int{1, 3, 10} {
				bubble.Run(t, fmt.Sprintf("%s, sliding %v, cost %d", row.name, sliding, cost), func(t *testing.T) {
					q := admission.Quota{Limit: limit, Window: window, Sliding: sliding, Cost: func(*http.Request) int { return cost }}
					handlers := []http.Handler{q.Handler(replays)}
					if row.store != nil {
						q.Store = row.store()
					}
					if row.name == "shared by two" {
						other := admission.Quota{Limit: limit, Window: window, Sliding: sliding, Cost: q.Cost, Store: q.Store}
						handlers = append(handlers, other.Handler(replays))
					}
					served := func(address string) (n int) {
						for i := range 3 * limit { // more than two limits, so that what follows is rejected
							if ask(t, handlers[i%len(handlers)], from(address)).StatusCode == http.StatusOK {
								n += cost
							}
						}
						return n
					}
					at := served("192.0.2.1:1")
					require.LessOrEqual(t, at, 2*limit)
					require.Greater(t, at, 2*limit-cost)
					require.Zero(t, served("192.0.2.1:1"))
					require.Equal(t, at, served("192.0.2.2:1"), "another key")
					const seconds = 600
					total := 0
					for range seconds {
						sleep(time.Second)
						total += served("192.0.2.1:1")
					}
					require.LessOrEqual(t, total, 2*limit*seconds/60)
				})
			}
		}
	}
}

// FuzzQuotaHeaders checks that our own client can read the fields of any Quota.
func FuzzQuotaHeaders(f *testing.F) {
	f.Add("default", 100, int64(time.Minute), 0, 1)
	f.Add(`a"b\c`, 1, int64(1), 7, 3)
	f.Add("", 1<<30, int64(366*24*time.Hour), 1<<30, 1<<30)
	f.Fuzz(func(t *testing.T, name string, limit int, window int64, burst, taken int) {
		q := &admission.Quota{Name: name, Limit: limit, Window: time.Duration(window), Burst: burst}
		if q.Validate() != nil {
			return
		}
		most := quotastore.Rule{Limit: limit, Burst: burst}.Capacity()
		require.NoError(t, errOf(q.Take(t.Context(), "192.0.2.1", min(max(taken, 0), most))))
		resp := ask(t, q.Handler(ok()))
		state, _ := ratelimitheader.Parse(resp.Header, time.Now())
		require.Len(t, state.Dimensions, 1, "%v", resp.Header)
		require.LessOrEqual(t, state.Dimensions[0].Remaining, int64(most))
		require.Positive(t, state.Dimensions[0].Limit)
		require.Positive(t, state.Dimensions[0].Window)
	})
}

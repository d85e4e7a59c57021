package route

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// list is a call with n servers.
func list(n int) *Call[int] {
	r := &Route{Targets: make([]Target, n)}
	breaker := circuit.New(circuit.Rules{}, epoch)
	return NewCall(r, func(*Target) (int, *circuit.Circuit, *Rest) { return 0, breaker.New(scope.Key{}), new(Rest) })
}

// open opens the circuit of a server.
func (c *Call[R]) open(i int) {
	for range 100 {
		p, rejection := c.servers[i].Circuit.Admit(epoch, func() uint64 { return 0 }, false)
		if rejection != nil {
			return
		}
		p.Done(circuit.Result{Server: outcome.Fails}, epoch)
	}
}

// pass returns the servers that Pass tries, if none but the given one admits the attempt.
func (c *Call[R]) pass(v *Visit[R], concurrent bool, admits int, waits bool) (tried []int) {
	c.Pass(v, concurrent, epoch, func() *Rejection {
		tried = append(tried, v.index)
		if v.index == admits || !v.AtOnce {
			return nil
		}
		return &Rejection{Waits: waits, Until: epoch.Add(time.Duration(v.index))}
	})
	return tried
}

func TestPass(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(*Call[int])
		visit   func(*Call[int]) Visit[int]
		copy    bool
		admits  int
		waits   bool
		want    []int
	}{
		{"the first works", nil, nil, false, 0, false, []int{0}},
		{"the first has no permit: the next", nil, nil, false, 1, true, []int{0, 1}},
		{"none has a permit: it waits for the first that is free", nil, nil, false, -1, true, []int{0, 1, 2, 0, 1, 2, 0}},
		{"the circuit of the first is open: the others first", func(c *Call[int]) { c.open(0); c.servers[0].Rest.claim(epoch, time.Second) }, nil, false, 1, false, []int{1}},
		{"one call probes", func(c *Call[int]) { c.Safe = true; c.open(0) }, nil, false, 0, false, []int{0}},
		{"a safe call met the server a minute ago: an unsafe one does not probe", func(c *Call[int]) { c.open(0); c.servers[0].Rest.noteSafe(epoch.Add(-time.Minute)) }, nil, false, 1, false, []int{1}},
		{"no safe call met it for longer: an unsafe one probes", func(c *Call[int]) { c.open(0); c.servers[0].Rest.noteSafe(epoch.Add(-time.Minute - 1)) }, nil, false, 0, false, []int{0}},
		{"the safe call read the clock later: an unsafe one does not probe", func(c *Call[int]) { c.open(0); c.servers[0].Rest.noteSafe(epoch.Add(1)) }, nil, false, 1, false, []int{1}},
		{"the clock was set back since: an unsafe one probes", func(c *Call[int]) { c.open(0); c.servers[0].Rest.noteSafe(epoch.Add(time.Minute + 1)) }, nil, false, 0, false, []int{0}},
		{"all circuits are open: as one server", func(c *Call[int]) { c.open(0); c.open(1); c.open(2) }, nil, false, 0, false, []int{0}},
		{"a copy never waits", nil, nil, true, -1, true, []int{0, 1, 2, 0, 1, 2}},
		{"a visit that must stay waits there", func(c *Call[int]) { c.bound.Store(true) }, func(c *Call[int]) Visit[int] {
			v := c.First()
			return c.Next(&v, Retry, epoch)
		}, false, -1, true, []int{0}},
		{"a move skips what the call has tried", func(c *Call[int]) { c.servers[0].tried.Store(true) }, func(c *Call[int]) Visit[int] {
			v := c.First()
			if v = c.Next(&v, Retry, epoch); !v.Moves() {
				panic("stays")
			}
			return v
		}, false, 2, true, []int{1, 2}},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := list(3)
			if row.prepare != nil {
				row.prepare(c)
			}
			v := c.First()
			if row.visit != nil {
				v = row.visit(c)
			}
			require.Equal(t, row.want, c.pass(&v, row.copy, row.admits, row.waits))
		})
	}
}

func TestRest(t *testing.T) {
	var r Rest
	require.False(t, r.resting(epoch))
	require.True(t, r.claim(epoch, time.Second))
	require.False(t, r.claim(epoch, time.Second), "one call at a time")
	require.True(t, r.resting(epoch))
	require.False(t, r.resting(epoch.Add(time.Second)))
	require.False(t, r.resting(epoch.AddDate(-20, 0, 0)), "the clock went back")
	require.True(t, r.claim(epoch.Add(time.Second), time.Second))
}

func TestDone(t *testing.T) {
	for _, row := range []struct {
		name                     string
		success, failure, noWork bool
		retryAfter, rests        time.Duration
		bound                    bool
	}{
		{"a success ends a probe", true, false, false, 0, 0, true},
		{"a failed probe: the next one later", false, true, true, 0, ProbePause, false},
		{"a canceled probe: the next one later", false, false, true, 0, ProbePause, false},
		{"no reason for a retry, but it may have worked", false, false, false, 0, ProbePause, true},
		{"a failure that may have worked binds the call", false, true, false, 0, ProbePause, true},
		{"a wait that the server asks for", false, true, true, 20 * time.Second, 20 * time.Second, false},
		{"a wait without a reason for a retry", true, false, false, 20 * time.Second, 0, true},
		{"a wait of a year is an hour", false, true, true, 365 * 24 * time.Hour, time.Hour, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := list(2)
			v := c.First()
			v.Probes = v.Rest.claim(epoch, time.Hour)
			c.Done(&v, Result{epoch, epoch, row.success, row.failure, row.noWork, row.retryAfter})
			require.Equal(t, row.rests > 0, v.Rest.resting(epoch))
			if row.rests > 0 {
				require.True(t, v.Rest.resting(epoch.Add(row.rests-1)))
				require.False(t, v.Rest.resting(epoch.Add(row.rests)))
			}
			require.Equal(t, row.bound, c.bound.Load())
		})
	}
}

func TestSlow(t *testing.T) {
	for _, row := range []struct {
		slow, usual, want time.Duration
	}{
		{time.Minute, time.Second, 2 * time.Second},
		{0, time.Second, 2 * time.Second},
		{time.Minute, time.Millisecond, 100 * time.Millisecond},
		{time.Minute, 0, time.Second},
		{10 * time.Millisecond, time.Second, 10 * time.Millisecond},
	} {
		require.Equal(t, row.want, Slow(row.slow, row.usual), row)
	}
}

func TestApply(t *testing.T) {
	h := http.Header{"x-key": {"the caller's"}, "X-Other": {"1"}, "Cookie": {"c"}}
	target := Target{Header: http.Header{"X-Key": {"secret"}, "Cookie": {}}}
	got := target.Apply(h)
	require.Equal(t, http.Header{"X-Key": {"secret"}, "X-Other": {"1"}, "Cookie": {}}, got)
	require.Equal(t, http.Header{"x-key": {"the caller's"}, "X-Other": {"1"}, "Cookie": {"c"}}, h)
	got.Add("X-Key", "more")
	require.Equal(t, []string{"secret"}, target.Header["X-Key"])
	require.Equal(t, "secret", target.Apply(nil).Get("X-Key"))
	require.Nil(t, (&Target{}).Apply(nil))
}

// FuzzSetPath requires that a path keeps its escapes and cannot change the host.
func FuzzSetPath(f *testing.F) {
	for _, path := range []string{"", "/", "/v1/x%2Fy", "//evil.test/x", "/%zz", "/a b", "/?x#y", "/é", "/%C3%A9%2f"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, text string) {
		from, err := url.Parse("http://a.test" + text)
		if err != nil || from.Host != "a.test" {
			return
		}
		r := Route{Path: from.EscapedPath()}
		to := r.URL(&Target{URL: &url.URL{Scheme: "https", Host: "b.test", Path: "/api"}}, from)
		require.Equal(t, "/api"+from.EscapedPath(), to.EscapedPath())
		again, err := url.Parse(to.String())
		require.NoError(t, err)
		require.Equal(t, "b.test", again.Host)
		require.Equal(t, from.RawQuery, again.RawQuery)
		require.Equal(t, to.EscapedPath(), again.EscapedPath())
	})
}

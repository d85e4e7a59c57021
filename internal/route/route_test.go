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
		{"a move to none that is new: one that was tried", func(c *Call[int]) { c.servers[0].tried.Store(true) }, func(c *Call[int]) Visit[int] {
			v := c.First()
			return c.Next(&v, Retry, epoch)
		}, false, 0, true, []int{1, 2, 1, 2, 2, 0}},
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

// An attempt waits for the server that may have a permit first.
func TestPass_waitsForTheSoonest(t *testing.T) {
	in := func(d time.Duration) Rejection { return Rejection{true, epoch.Add(d)} }
	for _, row := range []struct {
		name string
		each [3]Rejection
		want int
	}{
		{"the soonest", [3]Rejection{in(5), in(3), in(4)}, 1},
		{"the first of them", [3]Rejection{in(5), in(3), in(3)}, 1},
		{"one that has a permit at all", [3]Rejection{{}, in(3), in(4)}, 1},
		{"not one that has none, although it knows when", [3]Rejection{in(5), {false, epoch}, in(9)}, 0},
		{"the first, if none has one", [3]Rejection{}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := list(3)
			v := c.First()
			c.Pass(&v, false, epoch, func() *Rejection {
				if !v.AtOnce {
					return nil
				}
				return &row.each[v.index]
			})
			require.Equal(t, row.want, v.index)
			require.True(t, v.tried.Load())
		})
	}
}

// An attempt that is not sent has not tried its server.
func TestPass_notSent(t *testing.T) {
	for _, rejection := range []*Rejection{nil, {}} {
		c := list(2)
		v := c.First()
		v.reach = one
		c.Pass(&v, false, epoch, func() *Rejection { return rejection })
		require.Equal(t, rejection == nil, c.servers[0].tried.Load())
	}
}

// A safe call that has to wait cannot probe for the others, so it does not count as one that has met the server.
func TestPass_safeCallThatWaits(t *testing.T) {
	for _, row := range []struct{ safe, waits, noted bool }{
		{true, true, false}, {true, false, true}, {false, true, true}, {false, false, true},
	} {
		c := list(2)
		c.Safe = row.safe
		rest := c.servers[0].Rest
		rest.noteSafe(epoch)
		v := c.First()
		c.pass(&v, true, -1, row.waits)
		require.Equal(t, row.noted, rest.safeWithin(epoch, time.Minute), "%+v", row)
	}
}

// The probe of a safe call is repeated after a pause, if it hangs. An unsafe one might do the work twice.
func TestPass_lengthOfAProbe(t *testing.T) {
	for safe, want := range map[bool]time.Duration{true: ProbePause, false: maxRest} {
		c := list(2)
		c.Safe = safe
		c.open(0)
		v := c.First()
		require.Equal(t, []int{0}, c.pass(&v, false, 0, false))
		require.True(t, v.Probes)
		require.True(t, v.Rest.resting(epoch.Add(want-1)))
		require.False(t, v.Rest.resting(epoch.Add(want)))
	}
}

// A retry moves to a server that the call has not tried and that would admit it, or else to one that would.
func TestNext(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(*Call[int])
		kind    Kind
		want    int
		reach   reach
	}{
		{"the next one", func(*Call[int]) {}, Retry, 1, untried},
		{"its circuit is open: the one after it", func(c *Call[int]) { c.open(1) }, Retry, 2, untried},
		{"it rests: the one after it", func(c *Call[int]) { c.servers[1].Rest.claim(epoch, time.Hour) }, Retry, 2, untried},
		{"none would admit it: where it was", func(c *Call[int]) { c.open(1); c.servers[2].Rest.claim(epoch, time.Hour) }, Retry, 0, all},
		{"all are tried: the next one", func(c *Call[int]) { c.servers[1].tried.Store(true); c.servers[2].tried.Store(true) }, Retry, 1, all},
		{"the last server must get it", func(c *Call[int]) { c.Free = true }, RetryHere, 0, one},
		{"one may have done the work: no other one", func(c *Call[int]) { c.bound.Store(true) }, Retry, 0, one},
		{"one may have done the work, but the call is free", func(c *Call[int]) { c.bound.Store(true); c.Free = true }, Retry, 1, untried},
		{"a copy: no other one", func(*Call[int]) {}, Copy, 0, one},
		{"a copy of a call that is free: elsewhere", func(c *Call[int]) { c.Free = true }, Copy, 1, all},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := list(3)
			row.prepare(c)
			v := c.First()
			next := c.Next(&v, row.kind, epoch)
			require.Equal(t, row.want, next.index)
			require.Equal(t, row.reach, next.reach)
		})
	}
}

// A call stays at the server that may have done its work, unless it is free. A call without a list has one server.
func TestBind(t *testing.T) {
	for _, free := range []bool{false, true} {
		c := list(2)
		c.Free = free
		for i := range c.servers {
			c.servers[i].Target = &Target{Scope: string("ab"[i])}
		}
		v := c.First()
		require.Empty(t, c.BoundTo(&v), "nothing was sent")
		c.Bind(&v)
		if free {
			require.Equal(t, all, v.reach)
			require.Empty(t, c.BoundTo(&v))
			continue
		}
		require.Equal(t, one, v.reach)
		require.Equal(t, "a", c.BoundTo(&v))
		again := list(2)
		again.servers[0].Target, again.servers[1].Target = c.servers[1].Target, c.servers[0].Target
		again.Return(&v, "a")
		require.Equal(t, 1, v.index)
		require.Equal(t, "a", again.BoundTo(&v))
	}
	var none *Call[int]
	none.Bind(&Visit[int]{})
	require.Empty(t, none.BoundTo(&Visit[int]{}))
	require.True(t, none.Alone())
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

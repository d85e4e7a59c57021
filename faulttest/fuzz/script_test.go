package fuzz_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

var hosts = []string{"a.test", "b.test"}

const idleClose = 10 * time.Millisecond // the time for which a server keeps an idle connection, with endIdle

// script is what a seed means: the faults of the servers, the settings of the client, and its calls.
type script struct {
	seed       uint64
	faults     [][]fault // by server
	sharedKeys bool
	http2      bool
	settings   settings
	calls      []*call
}

// newScript draws a script. It has no other source of chance than the seed.
func newScript(seed uint64) *script {
	d := draw{rand.New(rand.NewPCG(seed, 46))}
	later := draw{rand.New(rand.NewPCG(seed, 80))} // of what was added since: the seeds of found draw what they drew
	s := &script{seed: seed, http2: d.in(5), settings: d.settings()}
	s.sharedKeys = s.settings.endpoints && d.in(4)
	for range hosts {
		faults := make([]fault, d.IntN(10))
		for i := range faults {
			faults[i] = d.fault()
			faults[i].proxied(later)
		}
		s.faults = append(s.faults, faults)
	}
	at := time.Duration(0)
	for i := range 2 + d.IntN(7) {
		at += pick(d, 0, time.Millisecond, idleClose, 100*time.Millisecond, 3*time.Second)
		c := d.call("call-"+strconv.Itoa(i), at)
		c.drawMore(later)
		c.loop = c.loop && s.settings.classify == 0 // what is a success for the client, the loop must not repeat
		c.rewinds = c.rewinds && !s.redirectsBody()
		s.calls = append(s.calls, c)
	}
	return s
}

// redirectsBody reports whether http.Client may send a body to the target of a redirect. It calls GetBody as soon as it has the
// response, while the Transport below may still read the body, also without this library. So such a body must not be rewound.
func (s *script) redirectsBody() bool {
	redirects := func(f fault) bool {
		return f.status == http.StatusTemporaryRedirect || f.status == http.StatusPermanentRedirect
	}
	for _, faults := range s.faults {
		if slices.ContainsFunc(faults, redirects) {
			return !s.settings.ownRedirects
		}
	}
	return false
}

// proxied makes a proxy write the answer: it asks to wait although the server has done the work, it says that nothing was
// executed, or it answers before it has read the body.
func (f *fault) proxied(d draw) {
	switch open := f.status == http.StatusRequestTimeout || f.status == http.StatusServiceUnavailable; {
	case open && d.in(2):
		f.work = true
	case f.status >= http.StatusInternalServerError && d.in(4):
		f.work = false
		f.fields["Request-Executed"] = "?0"
	case f.status >= http.StatusBadRequest && !f.work && d.in(4):
		f.hasty = true
	}
	f.late = d.in(3)
	if f.status == http.StatusBadGateway && d.in(2) {
		f.fields["Retry-After"] = "1"
	}
}

func (s *script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, http2 %t, shared keys %t\n%+v\n", s.seed, s.http2, s.sharedKeys, s.settings)
	for i, faults := range s.faults {
		for j, f := range faults {
			fmt.Fprintf(&b, "%s, request %d: %+v\n", hosts[i], j+1, f)
		}
	}
	for _, c := range s.calls {
		fmt.Fprintf(&b, "%+v\n", c.plan)
	}
	return b.String()
}

// draw is a source of chance.
type draw struct{ *rand.Rand }

// in is true once in n draws.
func (d draw) in(n int) bool { return d.IntN(n) == 0 }

// pick draws one of the values.
func pick[T any](d draw, values ...T) T { return values[d.IntN(len(values))] }

func (d draw) fault() fault {
	f := fault{work: d.in(2), fields: map[string]string{}, early: d.in(8)}
	f.pause = pick(d, 0, 0, time.Millisecond, 50*time.Millisecond, 700*time.Millisecond, 4*time.Second)
	switch d.IntN(5) {
	case 0:
		f.work = true // a success
		f.end = pick(d, "", "", "", endShort, endIdle, endIdle)
		if d.in(4) {
			f.fields["X-RateLimit-Limit"], f.fields["X-RateLimit-Remaining"], f.fields["X-RateLimit-Reset"] = "10", "0", "3"
		}
		if d.in(4) {
			f.fields["Connection"] = "close"
		}
	case 1, 2:
		f.end = pick(d, endReset, endClose, endClose, endDie)
	case 3: // the status says that no work was done
		f.work = false
		f.status = pick(d, 408, 421, 425, 429, 429, 429, 503, 503, 307, 307, 308, 402, 404, 409)
		if f.status == http.StatusServiceUnavailable || d.in(4) {
			f.fields["Retry-After"] = pick(d, "0", "1", "3")
		}
	case 4: // the status leaves the work open
		f.status = pick(d, 500, 500, 502, 503, 504)
	}
	if f.status/100 == 3 {
		f.to = pick(d, "", hosts[0], hosts[1])
	}
	if f.status == 0 && f.end == "" && d.in(6) {
		f.status = http.StatusSeeOther
	}
	if f.status >= http.StatusBadRequest && d.in(2) {
		f.fields[pick(d, "X-Should-Retry", "Stripe-Should-Retry")] = pick(d, "true", "true", "false")
	}
	return f
}

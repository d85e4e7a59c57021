package endpoints_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// done is a call of a load.
type done struct {
	at       time.Duration // since the start of the load
	took     time.Duration
	ok       bool
	endpoint string // that of the response
}

// load makes calls at random times, at a mean rate, each with a deadline.
type load struct {
	rate     float64
	length   time.Duration
	method   string
	deadline time.Duration
}

func (l load) run(t *testing.T, transport http.RoundTripper, url string, at map[time.Duration]func()) []done {
	t.Helper()
	var mu sync.Mutex
	var all []done
	var calls sync.WaitGroup
	begin := time.Now()
	for when, f := range at {
		time.AfterFunc(when, f)
	}
	for time.Since(begin) < l.length {
		pause := 1 / l.rate
		if l.rate > 10 { // with few calls, chance would decide when the next one is
			pause *= rand.ExpFloat64()
		}
		time.Sleep(time.Duration(pause * float64(time.Second)))
		calls.Go(func() {
			d := done{at: time.Since(begin)}
			ctx, cancel := context.WithTimeout(context.Background(), l.deadline)
			defer cancel()
			body := http.NoBody
			req, err := http.NewRequestWithContext(ctx, l.method, url, body)
			if l.method == http.MethodPost {
				req, err = http.NewRequestWithContext(ctx, l.method, url, strings.NewReader("{}"))
			}
			if assert.NoError(t, err) {
				resp, err := transport.RoundTrip(req)
				d.took = time.Since(begin) - d.at
				if err == nil {
					attempts := resilienthttp.Attempts(resp)
					for i := range attempts {
						if attempts[i].Response == resp {
							d.endpoint = attempts[i].Endpoint
						}
					}
					d.ok = resp.StatusCode == http.StatusOK && resp.Body.Close() == nil
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, d)
		})
	}
	calls.Wait()
	return all
}

// between selects the calls that began in a part of the load.
func between(all []done, from, to time.Duration) (part []done) {
	for _, d := range all {
		if d.at >= from && d.at < to {
			part = append(part, d)
		}
	}
	return part
}

func share(all []done, is func(done) bool) float64 {
	n := 0
	for _, d := range all {
		if is(d) {
			n++
		}
	}
	return float64(n) / float64(max(len(all), 1))
}

func succeeded(d done) bool { return d.ok }

func p99(all []done) time.Duration {
	var took []time.Duration
	for _, d := range all {
		took = append(took, d.took)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// N3: the first endpoint is down for a minute, and the second is healthy. The success is at least .999.
// After its circuit has opened, a call costs what it costs on a healthy list, and the traffic is back 5 s
// after it recovers.
func TestTransport_firstDown(t *testing.T) {
	const latency = 40 * time.Millisecond
	for _, row := range []struct {
		name    string
		down    http.RoundTripper
		method  string
		shared  bool
		rate    float64
		opens   time.Duration // by when its circuit is open
		success float64
	}{
		{"refused, GET", refused, http.MethodGet, false, 25, 5 * time.Second, .999},
		{"reset, GET", reset, http.MethodGet, false, 25, 5 * time.Second, .999},
		{"503, GET", answers(503, nil), http.MethodGet, false, 25, 5 * time.Second, .999},
		{"503 with Retry-After, GET", answers(503, http.Header{"Retry-After": {"2"}}), http.MethodGet, false, 25, 5 * time.Second, .999},
		{"429, GET", answers(429, nil), http.MethodGet, false, 25, 5 * time.Second, .999},
		{"429 with Retry-After, GET", answers(429, http.Header{"Retry-After": {"2"}}), http.MethodGet, false, 25, 5 * time.Second, .999},
		{"429, 100 GETs in a second", answers(429, nil), http.MethodGet, false, 100, 5 * time.Second, .999},
		{"500, 100 GETs in a second", answers(500, nil), http.MethodGet, false, 100, 5 * time.Second, .999},
		{"hangs, GET", hangs, http.MethodGet, false, 50, 25 * time.Second, .999},
		{"refused, POST", refused, http.MethodPost, false, 25, 5 * time.Second, .999},
		{"429, POST", answers(429, nil), http.MethodPost, false, 25, 5 * time.Second, .999},
		{"503, POST with shared keys", answers(503, nil), http.MethodPost, true, 25, 5 * time.Second, .999},
		{"503, POST", answers(503, nil), http.MethodPost, false, 50, 5 * time.Second, .95},
		{"refused, two GETs in a second", refused, http.MethodGet, false, 2, 20 * time.Second, .999},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			slow := faulttest.Reply{Body: "ok", Delay: latency}
			l := newList(t, func(tr *endpoints.Transport) { tr.SharedKeys = row.shared }, slow, slow)
			const fails, recovers, ends = 15 * time.Second, 75 * time.Second, 90 * time.Second
			all := load{rate: row.rate, length: ends, method: row.method, deadline: 10 * time.Second}.run(t, l, "http://a.test/x", map[time.Duration]func(){
				fails:    func() { l.setDown("a.test", row.down) },
				recovers: func() { l.setDown("a.test", nil) },
			})
			healthy, outage := between(all, 0, fails), between(all, fails, recovers)
			open, back := between(all, fails+row.opens, recovers), between(all, recovers+5*time.Second, ends)
			report := fmt.Sprintf("success %.4f, p99 healthy %v, down %v, open %v, back %.3f", share(outage, succeeded), p99(healthy), p99(outage), p99(open),
				share(back, func(d done) bool { return d.endpoint == "a" }))
			t.Log(report)
			assert.GreaterOrEqual(t, share(outage, succeeded), row.success, report)
			assert.LessOrEqual(t, p99(open), p99(healthy)*3/2, report)
			assert.GreaterOrEqual(t, share(back, func(d done) bool { return d.endpoint == "a" }), .95, report)
			assert.Zero(t, share(healthy, func(d done) bool { return d.endpoint != "a" }))
		})
	}
}

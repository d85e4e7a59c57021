package faulttest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// waitRows are about the time between attempts.
func waitRows() []row {
	return []row{
		{"retry-after", checkRetryAfter,
			"The server knows when it can serve; a client that comes earlier is rejected again, and may be blocked.",
			"RFC 9110, 10.2.3"},
		{"retry-after-clock", checkRetryAfterClock,
			"Clocks differ: if the server's is behind, its date is in the client's past, and the client does not wait at all.",
			"RFC 9110, 10.2.3 and 6.6.1"},
		{"retry-after-list", checkRetryAfterList,
			"A proxy and its backend each add a Retry-After, which some hop joins into a list; some servers send fractions or older dates.",
			"RFC 9110, 5.3: field lines are joined with commas; 5.6.7: a recipient must accept all three formats of a date"},
		{"jitter", checkJitter,
			"Clients that failed together come back in one instant, and overload the server again and again.",
			"AWS Architecture Blog, Exponential Backoff And Jitter"},
		{"bounded", checkBounded,
			"Without a deadline, a call that never ends holds its caller forever.",
			"Google SRE book, 22: limit retries per request"},
		{"deadline", checkDeadline,
			"The caller has gone by then, so the work of a later attempt is wasted.",
			"context, WithDeadline"},
		{"cancel", checkCancel,
			"A service that shuts down, or a user that has left, would wait for the end of the backoff.",
			"context, WithCancel; net/http, Request.Context"},
	}
}

// asked is the wait that the servers of the rows about Retry-After ask for. It is longer than the
// backoff of clients.
const asked = 20 * time.Second

// clients is the number of clients that are needed to see what is random.
const clients = 20

// waits makes a call with each of several clients. Each gets first, and then 200.
func (c *trial) waits(name string, first Reply, edit ...func(*Server)) *scene {
	s := c.scene(name, PerKey(first, OK("done")), edit...)
	var calls sync.WaitGroup
	for i := range clients {
		client, _ := s.another()
		calls.Go(func() { s.get(usual, client, fmt.Sprintf("/calls/%d", i)) })
	}
	calls.Wait()
	return s
}

// notEarly fails the row if a retry came earlier than the server has asked.
func (s *scene) notEarly() {
	for _, call := range s.Calls() {
		for i, gap := range call.Gaps() {
			s.want(gap >= asked, fmt.Sprintf("wait before request %d", call.Attempts[i+1].Number), "at least "+asked.String(), gap.String())
		}
	}
}

func checkRetryAfter(c *trial) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		for name, form := range map[string]RetryAfterFormat{"in seconds": Seconds, "as a date": HTTPDate} {
			c.waits(fmt.Sprintf("%d, Retry-After %s", status, name), Reply{Status: status, RetryAfter: asked, RetryAfterFormat: form}).notEarly()
		}
	}
	s := c.scene("503, Retry-After above the time left", Unavailable(asked, Seconds))
	s.call(asked/2, http.MethodGet, "")
	s.notEarly()
}

func checkRetryAfterClock(c *trial) {
	behind := func(s *Server) { s.Skew = -time.Hour }
	c.waits("the server's clock is an hour behind", Unavailable(asked, HTTPDate), behind).notEarly()
}

func checkRetryAfterList(c *trial) {
	for _, values := range [][]string{{"20, 20"}, {"20", "20"}, {"20.0"}} {
		c.waits(fmt.Sprintf("Retry-After: %q", values), Reply{Status: 503, Header: http.Header{"Retry-After": values}}).notEarly()
	}
	for name, form := range map[string]RetryAfterFormat{"RFC 850": RFC850Date, "asctime": ANSICDate} {
		c.waits("Retry-After: a date as in "+name, Unavailable(asked, form)).notEarly()
	}
}

func checkJitter(c *trial) {
	const instant = 10 * time.Millisecond
	for name, first := range map[string]Reply{"503": Status(503), "503 with Retry-After: 20": Unavailable(asked, Seconds)} {
		s := c.waits(fmt.Sprintf("%d clients get %s at once", clients, name), first)
		var retries []time.Time
		for _, call := range s.Calls() {
			if len(call.Attempts) > 1 {
				retries = append(retries, call.Attempts[1].ReceivedAt)
			}
		}
		most := 0
		for _, first := range retries {
			n := 0
			for _, other := range retries {
				if d := other.Sub(first); d >= 0 && d < instant {
					n++
				}
			}
			most = max(most, n)
		}
		s.want(most <= clients/2, "retries within 10 ms", fmt.Sprintf("at most %d", clients/2), fmt.Sprint(most))
	}
}

func checkBounded(c *trial) {
	s := c.scene("503 always, and the call has no deadline", Status(503))
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	begin := time.Now()
	defer time.AfterFunc(time.Hour, cancel).Stop()
	took := s.fetch(s.client.RoundTrip, s.request(ctx, http.MethodGet, "/file", "")).at.Sub(begin)
	s.want(took < time.Hour, "duration of the call", "less than an hour", took.String())
	for _, call := range s.Calls() {
		longest := slices.Max(append(call.Gaps(), 0))
		s.want(longest <= time.Minute, "longest wait between attempts", "at most 1m0s", longest.String())
	}
}

// slack is the time that a call may take after its deadline or its cancellation.
const slack = 10 * time.Millisecond

func checkDeadline(c *trial) {
	const left = 3 * time.Second
	for name, script := range map[string]http.Handler{
		"no response":              Hang,
		"503 after 400 ms, always": Reply{Status: 503, Delay: 400 * time.Millisecond},
		"503 with Retry-After: 20": Unavailable(asked, Seconds),
		"429 with Retry-After: 20": Reply{Status: 429, RetryAfter: asked},
		"connection refused":       away{OK("done"), time.Hour},
	} {
		s := c.scene(name, script)
		deadline := time.Now().Add(left)
		late := s.call(left, http.MethodGet, "").at.Sub(deadline)
		s.want(late <= slack, "return after the deadline", "at most "+slack.String(), late.String())
		c.sleep(usual)
		s.none(deadline)
	}
}

// none fails the row if a request came at that time or later.
func (s *scene) none(from time.Time) {
	for _, q := range s.Requests() {
		s.want(q.ReceivedAt.Before(from), fmt.Sprintf("time of request %d", q.Number), "before the end of the call",
			q.ReceivedAt.Sub(from).String()+" after it")
	}
}

func checkCancel(c *trial) {
	for name, script := range map[string]http.Handler{
		"during an attempt":             Hang,
		"in a wait for Retry-After: 20": Unavailable(asked, Seconds),
		"in the backoff":                Reply{Status: 503, Delay: 100 * time.Millisecond},
		"while the server refuses":      away{OK("done"), time.Hour},
	} {
		s := c.scene(name, script)
		ctx, cancel := context.WithTimeout(c.life, usual)
		canceled := time.Now().Add(750 * time.Millisecond)
		time.AfterFunc(time.Until(canceled), cancel)
		late := s.fetch(s.client.RoundTrip, s.request(ctx, http.MethodGet, "/file", "")).at.Sub(canceled)
		s.want(late <= slack, "return after the cancellation", "at most "+slack.String(), late.String())
		c.sleep(usual)
		s.none(canceled)
	}
}

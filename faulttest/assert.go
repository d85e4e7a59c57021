package faulttest

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// fail fails the test with a message and the transcript. l may be nil.
func (l *Log) fail(tb TB, what, want, got string) bool {
	tb = orDiscard(tb)
	tb.Helper()
	transcript := "no transcript: serve log.Record(handler), with a faulttest.Log"
	if l != nil {
		transcript = l.Transcript()
	}
	tb.Errorf("faulttest: %s\nwant: %s\ngot:  %s\n\n%s", what, want, got, transcript)
	return false
}

// complete fails the test if some requests were not kept. Assertions need all of them.
func (l *Log) complete(tb TB) bool {
	orDiscard(tb).Helper()
	l.mu.Lock()
	total, kept := l.total, len(l.last())
	l.mu.Unlock()
	if total == kept {
		return true
	}
	return l.fail(tb, "records of all requests (raise Log.MaxRequests)", fmt.Sprint(total), fmt.Sprint(kept))
}

// AssertRequests fails the test unless the number of requests is n. It reports whether it is.
func (l *Log) AssertRequests(tb TB, n int) bool {
	orDiscard(tb).Helper()
	if total := l.Total(); total != n {
		return l.fail(tb, "requests", fmt.Sprint(n), fmt.Sprint(total))
	}
	return true
}

// AssertAttempts fails the test unless the calls, in the order of their first requests, have those
// numbers of attempts: AssertAttempts(t, 3) for one call with three attempts, AssertAttempts(t, 3,
// 1) for two calls, AssertAttempts(t) for none. [Log.GroupCalls] defines a call. It reports whether
// the calls have those numbers.
func (l *Log) AssertAttempts(tb TB, attempts ...int) bool {
	orDiscard(tb).Helper()
	if !l.complete(tb) {
		return false
	}
	var got []int
	for _, c := range l.Calls() {
		got = append(got, len(c.Attempts))
	}
	if slices.Equal(got, attempts) {
		return true
	}
	return l.fail(tb, "attempts of each call", list(attempts), list(got))
}

func list(numbers []int) string {
	if len(numbers) == 0 {
		return "no calls"
	}
	return strings.Trim(fmt.Sprint(numbers), "[]")
}

// AssertKeys fails the test unless each call has one idempotency key, the same on all attempts.
// Each POST and PATCH must have exactly one key. There must be as many keys as calls. Different
// requests (method, host, URI, body) must not share a key, except after a redirect. It reports
// whether that is true.
//
// The test passes the number of calls, because a client with a new key for each attempt looks
// like one with more calls.
func (l *Log) AssertKeys(tb TB, calls int) bool {
	orDiscard(tb).Helper()
	if !l.complete(tb) {
		return false
	}
	var wrong []string
	seen := make(map[string][]Request)
	for _, q := range l.Requests() {
		values := q.Header.Values(l.keyHeader())
		if len(values) > 1 {
			wrong = append(wrong, fmt.Sprintf("request %d has %d keys", q.Number, len(values)))
		}
		if q.Key == "" {
			if q.Method == http.MethodPost || q.Method == http.MethodPatch {
				wrong = append(wrong, fmt.Sprintf("request %d has no key", q.Number))
			}
			continue
		}
		earlier := seen[q.Key]
		if len(earlier) > 0 && !slices.ContainsFunc(earlier, func(e Request) bool { return sameRequest(e, q) }) {
			if last := earlier[len(earlier)-1]; last.Status < 300 || last.Status >= 400 {
				wrong = append(wrong, fmt.Sprintf("request %d has the key of request %d, but is another request", q.Number, last.Number))
			}
		}
		seen[q.Key] = append(earlier, q)
	}
	if len(wrong) == 0 && len(seen) == calls {
		return true
	}
	got := strings.Join(append([]string{fmt.Sprint(len(seen))}, wrong...), "\n      ")
	return l.fail(tb, "idempotency keys, one for each call", fmt.Sprint(calls), got)
}

func sameRequest(a, b Request) bool { return a.target() == b.target() && sameBody(a, b) }

// sameBody compares bodies. A body that was not read counts as equal.
func sameBody(a, b Request) bool { return !a.BodyRead || !b.BodyRead || a.sum == b.sum }

// AssertBodies fails the test unless all attempts of each call have the same body, or if there are
// no requests. Bodies that were not read to their end are ignored. [Log.GroupCalls] defines a call;
// by default requests without a key are one call only if their bodies are equal. It reports
// whether the bodies are the same.
func (l *Log) AssertBodies(tb TB) bool {
	orDiscard(tb).Helper()
	if !l.complete(tb) {
		return false
	}
	calls := l.Calls()
	if len(calls) == 0 {
		return l.fail(tb, "bodies", "at least one request", "none")
	}
	for _, c := range calls {
		var first *Request
		for i := range c.Attempts {
			q := &c.Attempts[i]
			if first == nil && q.BodyRead {
				first = q
			}
			if first != nil && !sameBody(*first, *q) {
				return l.fail(tb, fmt.Sprintf("body of request %d, an attempt of the call of request %d", q.Number, first.Number),
					describe(first), describe(q))
			}
		}
	}
	return true
}

// describe returns the size, the beginning and the hash of a body.
func describe(q *Request) string {
	text := string(q.Body)
	if len(text) > 80 {
		text = text[:80] + "…"
	}
	return fmt.Sprintf("%d bytes, %q, sha256 %x", q.BodySize, text, q.sum[:sha256.Size/4])
}

// AssertSpacing fails the test unless all waits between attempts of a call are in [low, high], or
// if there is no second attempt. A high of 0 means no limit. [Call.Gaps] returns the waits. It
// reports whether the waits are in that range.
func (l *Log) AssertSpacing(tb TB, low, high time.Duration) bool {
	orDiscard(tb).Helper()
	if !l.complete(tb) {
		return false
	}
	want := fmt.Sprintf("at least %v", low)
	if high > 0 {
		want += fmt.Sprintf(", at most %v", high)
	}
	waits := 0
	var wrong []string
	for _, c := range l.Calls() {
		for i, gap := range c.Gaps() {
			waits++
			if gap < low || high > 0 && gap > high {
				wrong = append(wrong, fmt.Sprintf("%v between requests %d and %d", gap, c.Attempts[i].Number, c.Attempts[i+1].Number))
			}
		}
	}
	if waits == 0 {
		wrong = append(wrong, "no second attempt")
	}
	if len(wrong) == 0 {
		return true
	}
	return l.fail(tb, "waits between attempts", want, strings.Join(wrong, "\n      "))
}

// tolerance is the maximum time from the client to the server. It is allowed if the value is not a
// field of the request but was calculated with the server's clock.
func tolerance(isField bool) time.Duration {
	if isField {
		return 0
	}
	return 100 * time.Millisecond
}

// AssertDeadlines fails the test unless each request has a deadline, not later than latest. An
// attempt of a call must not have more time left than the previous one. It also fails if there are
// no requests. The zero latest means no limit. It reports whether the deadlines are correct.
//
// If a request has only one of the fields for the deadline and the time left, the other value has
// a tolerance of 100 ms.
func (l *Log) AssertDeadlines(tb TB, latest time.Time) bool {
	orDiscard(tb).Helper()
	if !l.complete(tb) {
		return false
	}
	var wrong []string
	for _, c := range l.Calls() {
		var last *Request
		for i := range c.Attempts {
			q := &c.Attempts[i]
			if q.Deadline.IsZero() {
				wrong = append(wrong, fmt.Sprintf("no deadline on request %d", q.Number))
				continue
			}
			if late := q.Deadline.Sub(latest); !latest.IsZero() && late > tolerance(q.hasDeadline) {
				wrong = append(wrong, fmt.Sprintf("%v too late on request %d", late, q.Number))
			}
			if last != nil && q.TimeLeft > last.TimeLeft+tolerance(q.hasTimeLeft && last.hasTimeLeft) {
				wrong = append(wrong, fmt.Sprintf("%v left on request %d, after %v on request %d", q.TimeLeft, q.Number, last.TimeLeft, last.Number))
			}
			last = q
		}
	}
	if l.Total() == 0 {
		wrong = append(wrong, "no requests")
	}
	if len(wrong) == 0 {
		return true
	}
	want := "one on each request, with no more time left than before"
	if !latest.IsZero() {
		want += ", none after " + latest.UTC().Format(time.RFC3339Nano)
	}
	return l.fail(tb, "deadlines", want, strings.Join(wrong, "\n      "))
}

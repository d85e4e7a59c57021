package faulttest

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// fail fails the test, and tells the story. There is none where l is nil.
func (l *Log) fail(tb TB, what, want, got string) bool {
	tb.Helper()
	story := "no transcript: serve log.Record(handler), with a faulttest.Log"
	if l != nil {
		story = l.Transcript()
	}
	tb.Errorf("faulttest: %s\nwant: %s\ngot:  %s\n\n%s", what, want, got, story)
	return false
}

// complete fails the test if requests are missing that an assertion would have
// to look at.
func (l *Log) complete(tb TB) bool {
	tb.Helper()
	l.mu.Lock()
	total, kept := l.total, len(l.last())
	l.mu.Unlock()
	if total == kept {
		return true
	}
	return l.fail(tb, "records of all requests (raise Log.MaxRequests)", fmt.Sprint(total), fmt.Sprint(kept))
}

// AssertRequests fails the test unless so many requests have come, and reports
// whether they have.
func (l *Log) AssertRequests(tb TB, n int) bool {
	tb = orNobody(tb)
	tb.Helper()
	if total := l.Total(); total != n {
		return l.fail(tb, "requests", fmt.Sprint(n), fmt.Sprint(total))
	}
	return true
}

// AssertAttempts fails the test unless the calls, in the order in which they
// began, were made of that many requests each: AssertAttempts(t, 3) for one call
// of three attempts, AssertAttempts(t, 3, 1) for two calls, AssertAttempts(t)
// for none. What a call is, [Log.GroupCalls] says. It reports whether they were.
func (l *Log) AssertAttempts(tb TB, attempts ...int) bool {
	tb = orNobody(tb)
	tb.Helper()
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

// AssertKeys fails the test unless the client used idempotency keys well for
// that many calls: each POST and PATCH bears exactly one key, there are as many
// keys as calls, and no two different requests (method, host, URI, body) share a
// key, save those that a redirect has led to. In other words, keys are unique to
// their calls and stable over attempts. It reports whether all this holds.
//
// It goes by the number of calls, which the test knows, since a client that
// takes a new key for each attempt looks like one that makes more calls.
func (l *Log) AssertKeys(tb TB, calls int) bool {
	tb = orNobody(tb)
	tb.Helper()
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
				wrong = append(wrong, fmt.Sprintf("request %d has the key of request %d, and is another one", q.Number, last.Number))
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

// sameBody gives the benefit of the doubt to bodies that were not read.
func sameBody(a, b Request) bool { return !a.BodyRead || !b.BodyRead || a.sum == b.sum }

// AssertBodies fails the test unless all attempts of a call had the same body,
// as far as bodies were read to their ends, and reports whether they had. What a
// call is, [Log.GroupCalls] says; by default requests without a key are of one call
// only if their bodies are equal. Where there are no requests at all, it fails.
func (l *Log) AssertBodies(tb TB) bool {
	tb = orNobody(tb)
	tb.Helper()
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

// describe says what a body was.
func describe(q *Request) string {
	text := string(q.Body)
	if len(text) > 80 {
		text = text[:80] + "…"
	}
	return fmt.Sprintf("%d bytes, %q, sha256 %x", q.BodySize, text, q.sum[:sha256.Size/4])
}

// AssertSpacing fails the test unless the client waited at least least, and at
// most most, before each attempt of each call but the first. 0 for most means
// no limit. [Call.Gaps] says what is measured, and is there for finer questions.
// Where no call has a second attempt, it fails. It reports whether the client did.
func (l *Log) AssertSpacing(tb TB, least, most time.Duration) bool {
	tb = orNobody(tb)
	tb.Helper()
	if !l.complete(tb) {
		return false
	}
	want := fmt.Sprintf("at least %v", least)
	if most > 0 {
		want += fmt.Sprintf(", at most %v", most)
	}
	waits := 0
	var wrong []string
	for _, c := range l.Calls() {
		for i, gap := range c.Gaps() {
			waits++
			if gap < least || most > 0 && gap > most {
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

// allowance is for the way from the client to the server, where one end's clock
// is compared with the other's.
const allowance = 100 * time.Millisecond

func allowed(said bool) time.Duration {
	if said {
		return 0
	}
	return allowance
}

// AssertDeadlines fails the test unless each request told the server a deadline
// that is no later than by, and no attempt of a call left the server more time
// than the attempt before it. The zero time for by means any. It reports whether
// that is so.
//
// Where the client tells the time that is left only by way of a deadline, or the
// deadline only by way of the time left, a tenth of a second is allowed for the
// way to the server. Where there are no requests at all, it fails.
func (l *Log) AssertDeadlines(tb TB, by time.Time) bool {
	tb = orNobody(tb)
	tb.Helper()
	if !l.complete(tb) {
		return false
	}
	var wrong []string
	for _, c := range l.Calls() {
		var last *Request
		for i := range c.Attempts {
			q := &c.Attempts[i]
			if q.Deadline.IsZero() {
				wrong = append(wrong, fmt.Sprintf("none on request %d", q.Number))
				continue
			}
			if late := q.Deadline.Sub(by); !by.IsZero() && late > allowed(q.saidDeadline) {
				wrong = append(wrong, fmt.Sprintf("%v later on request %d", late, q.Number))
			}
			if last != nil && q.TimeLeft > last.TimeLeft+allowed(q.saidLeft && last.saidLeft) {
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
	want := "one on each request, with no more time than before"
	if !by.IsZero() {
		want += ", and none after " + by.UTC().Format(time.RFC3339Nano)
	}
	return l.fail(tb, "deadlines", want, strings.Join(wrong, "\n      "))
}

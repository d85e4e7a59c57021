package resilienthttp

import (
	"net/http"
	"time"
)

// turn is the right to send one request, and the duty to say what came of it.
type turn struct {
	bucket  *bucket
	static  *staticLimit
	version uint64        // of the bucket at that time
	after   time.Duration // since the bucket's origin
}

func (t turn) sent() time.Time { return t.bucket.origin.Add(t.after) }

// giveBack returns a turn that was not used.
func (t turn) giveBack(now time.Time) {
	t.static.giveBack(now)
	b := t.bucket
	if b == nil || b.landedUnseen(now) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back(t, now)
	b.settle(now)
}

// done says what came of the request: the answer's news join what is known.
func (t turn) done(now time.Time, a *attempt, said *answer) {
	b := t.bucket
	if b == nil {
		return
	}
	of, resp := b, a.record.Response
	if said.quota.Bucket != "" {
		of = b.limit.learnRoute(b.account.Load(), a, resp, said.quota.Bucket)
	}
	if said.asksToWait && closes(resp.StatusCode) {
		wait := said.retryAfter
		if resp.StatusCode == http.StatusTooManyRequests {
			wait = of.denied.again(a.record.Start, now, wait)
		}
		of.close(b.steady(now).Add(min(wait, b.limit.settings.maxClosed)),
			said.quota.Bucket != "" && resp.StatusCode == http.StatusTooManyRequests)
	}
	if resp != nil && resp.StatusCode < http.StatusInternalServerError && !closes(resp.StatusCode) {
		of.denied.relent()
	}
	if of != b {
		of.mu.Lock()
		of.learn(t, now, resp, said)
		of.settle(now)
		of.mu.Unlock()
	}
	if (of != b || !said.limited) && b.landedUnseen(now) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case of != b:
	case resp != nil:
		b.learn(t, now, resp, said)
	case !a.neverSent():
		b.lose(t, now)
	}
	b.landed(t)
	b.settle(now)
}

// closes reports whether Retry-After beside the status is a word to everybody.
func closes(status int) bool {
	switch status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded:
		return true
	}
	return false
}

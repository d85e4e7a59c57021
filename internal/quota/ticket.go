package quota

import "time"

// Ticket is the right to send one request, and the duty to say what came of it:
// Done, once, or Cancel if it was not sent. The zero Ticket is of a Limiter that
// has nothing to say; both do nothing.
type Ticket struct {
	Waited bool // for its turn; the time that it took is the caller's to measure
	class  int8
	kind   kind // of turn that the lease gave
	scout  bool // sent in spite of a claim

	bucket       *bucket
	static       *static
	lease        *lease
	method, path string
	version      uint64        // of the bucket at that time
	after        time.Duration // since the limiter's origin
}

func (t *Ticket) sent() time.Time { return t.bucket.limiter.origin.Add(t.after) }

// Cancel returns a turn that was not used.
func (t *Ticket) Cancel(now time.Time) {
	if t.static != nil {
		t.static.cancel(now)
	}
	if t.lease != nil {
		t.lease.cancel(t.kind, now)
	}
	b := t.bucket
	if b == nil || b.landedUnseen(now) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back(*t, now)
	b.settle(now)
}

// count takes a token of the static ceiling, or of the quota that is shared. Where there
// is none, or a Waiter panics, the ticket is given back.
func (t *Ticket) count(now time.Time, q queueing) (stood bool, refused *Refusal) {
	through := false
	defer func() {
		if !through {
			t.static, t.lease = nil, nil
			t.Cancel(time.Now())
		}
	}()
	if t.lease != nil {
		t.kind, stood, refused = t.lease.enter(now, q)
	} else {
		stood, refused = t.static.enter(now, q)
	}
	through = refused == nil
	return stood, refused
}

// renew makes the turn one of now, for a request that has waited for something
// else since it had it. It reports false if it would have none by now.
func (t *Ticket) renew(now time.Time) bool {
	b := t.bucket
	if b == nil {
		return true
	}
	if b.free() {
		t.after = now.Sub(b.limiter.origin)
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.tick(now)
	if t.scout {
		t.version, t.after = b.version, now.Sub(b.limiter.origin)
		return true
	}
	if o := b.opening(now, t.class); o.shut && o.at.After(now) {
		return false
	}
	b.back(*t, now)
	fresh := b.take(now, t.class)
	t.version, t.after = fresh.version, fresh.after
	return true
}

// Done says what came of the request: the answer's news join what is known.
func (t *Ticket) Done(a *Answer, now time.Time) {
	of := t.bucket
	if of != nil {
		of = t.done(a, now)
	}
	if t.lease == nil {
		return
	}
	var w word
	if of != nil && a.Status != 0 {
		w = of.wordOf(a, now)
		if of.lease != nil && of.lease != t.lease {
			of.lease.hear(w, ofNothing, now)
			w = word{answered: true}
		}
	}
	t.lease.hear(w, t.kind, now)
}

// done is Done for the bucket, and returns that which the answer speaks of.
func (t *Ticket) done(a *Answer, now time.Time) (of *bucket) {
	b := t.bucket
	of = b
	if a.Quota.Bucket != "" {
		of = b.limiter.learnRoute(b.account.Load(), t, &a.Quota)
	} else if id := b.apart(t, a); id != 0 {
		of = b.limiter.part(b, t, id)
	}
	of.judge(t.class, t.sent(), now, a)
	if of != b {
		of.mu.Lock()
		of.learn(t, now, a)
		of.settle(now)
		of.mu.Unlock()
	}
	if (of != b || len(a.Quota.Axes) == 0) && b.landedUnseen(now) {
		return of
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case of != b:
	case a.Status != 0:
		b.learn(t, now, a)
	case !a.Unsent:
		b.lose(t, now)
	}
	b.land(*t)
	b.settle(now)
	return of
}

package resilienthttp

import (
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	drainLimit = 64 << 10               // bytes of a discarded response that are read, so that its connection can be reused
	drainTime  = 100 * time.Millisecond // and how long that may take
)

// adopt makes the response's body end the attempt when it ends.
func (a *attempt) adopt(resp *http.Response) {
	resp.Request = &a.call.answered
	switch {
	case resp.Body == nil:
		resp.Body = http.NoBody
		a.release()
	case resp.Body == http.NoBody:
		a.release()
	default:
		a.body = resp.Body
		if _, writable := resp.Body.(io.Writer); writable && resp.StatusCode == http.StatusSwitchingProtocols {
			resp.Body = (*upgradedBody)(a)
		} else {
			resp.Body = (*responseBody)(a)
		}
	}
}

// closeBody closes the response's body, once.
func (a *attempt) closeBody() error {
	if a.closed.Swap(true) {
		return nil
	}
	err := a.body.Close()
	a.release()
	return err
}

// discard closes a response that nobody will see. What is left of it is read
// first, within bounds, so that the connection can serve the next attempt.
func (a *attempt) discard() {
	if a.body == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		// A body of somebody's making may panic, and nobody could recover here.
		defer func() { _ = recover() }()
		defer func() { _ = a.closeBody() }()
		if _, err := io.CopyN(io.Discard, (*drain)(a), drainLimit); !errors.Is(err, io.EOF) {
			a.release() // or closing could wait: HTTP/2 does, for a request's body that is still being read
		}
	}()
	enough := time.NewTimer(drainTime)
	defer enough.Stop()
	select {
	case <-closed:
		return
	case <-enough.C:
	case <-a.call.ctx.Done():
	}
	a.release() // makes a read return that heeds its context,
	again := make(chan struct{})
	go func() {
		defer close(again)
		defer func() { _ = recover() }()
		_ = a.closeBody() // and one that does not
	}()
	enough.Reset(drainTime)
	select {
	case <-again:
	case <-enough.C: // neither heeds anything: it is Base's
	}
}

// drain is the response's body until it is closed, also where the body itself
// goes on for longer.
type drain attempt

func (d *drain) Read(p []byte) (int, error) {
	if d.closed.Load() {
		return 0, io.EOF
	}
	return d.body.Read(p)
}

// responseBody ends the attempt when it is read to its end or closed.
type responseBody attempt

func (b *responseBody) Read(p []byte) (int, error) {
	a := (*attempt)(b)
	limit := a.call.perCall().ReadTimeout
	if limit > 0 {
		if a.silence == nil {
			a.silence = time.AfterFunc(limit, a.tooSilent)
		} else {
			a.silence.Reset(limit)
		}
	}
	n, err := a.body.Read(p)
	if limit > 0 {
		a.silence.Stop()
	}
	if err != nil {
		if err != io.EOF && a.ended() == ErrReadTimeout {
			err = &Error{Reason: ErrReadTimeout, Attempts: a.call.attempts()}
		}
		if err == io.EOF {
			a.call.seen.bodies.Follow(time.Since(a.record.Start.Add(a.record.Latency)))
		}
		a.release()
	}
	return n, err
}

// bodyTime is how long the body of an answer will take: as a quick one, and no more than
// a quarter of the call's time, or one that was streamed for minutes would keep others
// from being asked for again.
func (c *call) bodyTime() time.Duration {
	return min(c.seen.bodies.Get(), c.deadline.Sub(c.start)/4)
}

// tooSilent makes the blocked Read return: by the context, and for bodies that
// do not heed it by closing.
func (a *attempt) tooSilent() {
	a.end(ErrReadTimeout)
	_ = a.closeBody()
}

func (b *responseBody) Close() error { return (*attempt)(b).closeBody() }

// upgradedBody is the connection that a 101 hands over: both ways, and as long
// as its owner wants.
type upgradedBody attempt

func (b *upgradedBody) Read(p []byte) (int, error) { return b.body.Read(p) }
func (b *upgradedBody) Close() error               { return (*attempt)(b).closeBody() }

func (b *upgradedBody) Write(p []byte) (int, error) {
	return b.body.(io.Writer).Write(p) //nolint:errcheck // adopt has made sure that it is one
}

// CloseWrite says that nothing more will be written, as httputil.ReverseProxy
// does when one side of an upgraded connection is done.
func (b *upgradedBody) CloseWrite() error {
	if half, ok := b.body.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

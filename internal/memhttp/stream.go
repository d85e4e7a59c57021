package memhttp

import (
	"bytes"
	"cmp"
	"sync"
	"syscall"
	"time"
)

// bufferSize is the number of bytes, in flight and unread, that one direction of a connection
// holds before writes block.
const bufferSize = 64 << 10

// stream is one direction of a connection, from its writer to its reader. Both directions
// share one mutex, so that a close or a reset changes both at the same time.
type stream struct {
	wake  *sync.Cond    // of the connection, with its mutex: all blocked calls wait for it
	delay time.Duration // from writing to arrival

	data    bytes.Buffer
	arrived int  // bytes of data that can be read; all of it without a delay
	fin     bool // the end of the stream after data has arrived
	rst     bool // a reset after data has arrived

	gone      bool          // the reader has closed its end
	discarded bool          // the one write that succeeds after the reader has closed was made
	refusal   syscall.Errno // the error of all further writes, after a reset or a close
	readBy    deadline      // of reads
	writeBy   deadline      // of writes
}

// deadline is a time after which calls fail.
type deadline struct {
	at    time.Time // zero: none
	timer *time.Timer
}

func (d *deadline) set(s *stream, t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
	}
	*d = deadline{}
	if !t.IsZero() {
		wait := time.Until(t)
		// Not t itself: without a monotonic reading the timer could fire a moment before
		// that time, and the waiters would then wait forever.
		d.at = time.Now().Add(wait)
		d.timer = s.after(wait, func() {})
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && time.Until(d.at) <= 0 }

// after calls f after d, with the mutex held, and wakes all waiters. If d is 0 it calls f now,
// and the caller must hold the mutex. Calls for the same time may come in either order.
func (s *stream) after(d time.Duration, f func()) *time.Timer {
	if d <= 0 {
		f()
		s.wake.Broadcast()
		return nil
	}
	return time.AfterFunc(d, func() {
		s.wake.L.Lock()
		defer s.wake.L.Unlock()
		f()
		s.wake.Broadcast()
	})
}

// push adds as much of p as fits and returns that number of bytes. 0 means that the writer must wait.
func (s *stream) push(p []byte, back *stream) int {
	k := min(len(p), bufferSize-s.data.Len())
	switch {
	case s.gone && s.discarded, k == 0:
		return 0
	case s.gone:
		// The writer's kernel accepts the bytes, the peer's kernel answers with a
		// reset, and only the next write fails.
		s.discarded = true
		s.after(s.delay+back.delay, func() { s.refusal = cmp.Or(s.refusal, syscall.EPIPE) })
	default:
		s.data.Write(p[:k])
		// A fin or a reset at the same time may have made these bytes readable already.
		s.after(s.delay, func() { s.arrived = min(s.arrived+k, s.data.Len()) })
	}
	return k
}

// pull removes data that has arrived.
func (s *stream) pull(p []byte) int {
	k, _ := s.data.Read(p[:min(len(p), s.arrived)])
	s.arrived -= k
	s.wake.Broadcast()
	return k
}

func (s *stream) finish() {
	s.after(s.delay, func() { s.fin, s.arrived = true, s.data.Len() })
}

// reset sends a reset to the reader, which writes to back. After a fin it only makes the
// reader's writes fail.
func (s *stream) reset(back *stream, finished bool) {
	s.after(s.delay, func() {
		if finished {
			back.refusal = cmp.Or(back.refusal, syscall.EPIPE)
			return
		}
		s.rst, s.arrived = true, s.data.Len()
		back.refusal = cmp.Or(back.refusal, syscall.ECONNRESET)
	})
}

// abort resets the stream at once, without the delay.
func (s *stream) abort() {
	s.rst, s.arrived = !s.fin, s.data.Len()
	s.refusal = cmp.Or(s.refusal, syscall.ECONNRESET)
	s.wake.Broadcast()
}

package memhttp

import (
	"bytes"
	"cmp"
	"sync"
	"syscall"
	"time"
)

// bufferSize is the number of unread bytes that one direction of a connection holds before writes block.
const bufferSize = 64 << 10

// stream is one direction of a connection, from its writer to its reader. Both directions
// share one mutex, so that a close or a reset changes both at the same time.
type stream struct {
	wake *sync.Cond // of the connection, with its mutex: all blocked calls wait for it

	data bytes.Buffer
	fin  bool // the stream ends after data
	rst  bool // the connection was reset after data

	gone    bool          // the reader has closed its end
	refusal syscall.Errno // the error of all further writes, after a reset or a close
	readBy  deadline      // of reads
	writeBy deadline      // of writes
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
		d.timer = time.AfterFunc(wait, func() {
			s.wake.L.Lock()
			defer s.wake.L.Unlock()
			s.wake.Broadcast()
		})
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && time.Until(d.at) <= 0 }

// push adds as much of p as fits and returns that number of bytes. 0 means that the writer must wait.
func (s *stream) push(p []byte) int {
	k := min(len(p), bufferSize-s.data.Len())
	switch {
	case k == 0: // without a wake-up, because waiting writers would wake each other forever
	case s.gone:
		// The writer's kernel accepts the bytes, the peer's kernel answers with a
		// reset, and only the next write fails.
		s.refusal = cmp.Or(s.refusal, syscall.EPIPE)
	default:
		s.data.Write(p[:k])
		s.wake.Broadcast()
	}
	return k
}

// abort resets the stream.
func (s *stream) abort() {
	s.rst = !s.fin
	s.refusal = cmp.Or(s.refusal, syscall.ECONNRESET)
	s.wake.Broadcast()
}

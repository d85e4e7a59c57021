package memhttp

import (
	"sync"
	"syscall"
	"time"
)

// bufferSize is the number of bytes, in flight and unread, that one direction of a connection
// holds before writes block.
const bufferSize = 64 << 10

// ring is a queue of at most bufferSize bytes. It starts small, because most connections of a
// test transfer little. The zero value is empty.
type ring struct {
	buf   []byte
	start int
	n     int
}

// write adds as much of p as fits and returns that number of bytes.
func (r *ring) write(p []byte) int {
	p = p[:min(len(p), bufferSize-r.n)]
	if need := r.n + len(p); need > len(r.buf) {
		size := max(len(r.buf), 4<<10)
		for size < need {
			size *= 2
		}
		grown := make([]byte, size)
		r.peek(grown)
		r.buf, r.start = grown, 0
	}
	end := (r.start + r.n) % max(len(r.buf), 1)
	k := copy(r.buf[end:], p)
	copy(r.buf, p[k:])
	r.n += len(p)
	return len(p)
}

// peek copies the oldest bytes into p without removing them.
func (r *ring) peek(p []byte) int {
	p = p[:min(len(p), r.n)]
	k := copy(p, r.buf[r.start:min(r.start+len(p), len(r.buf))])
	copy(p[k:], r.buf)
	return len(p)
}

// read removes the oldest bytes and copies them into p.
func (r *ring) read(p []byte) int {
	k := r.peek(p)
	r.n -= k
	if r.start += k; r.start >= len(r.buf) {
		r.start -= len(r.buf)
	}
	return k
}

// deadline wakes a condition at a time. The condition's mutex protects it.
//
// passed is a flag instead of a comparison with time.Now: without a monotonic reading the
// timer could fire a moment before that time, and the waiters would then wait forever.
type deadline struct {
	wake   *sync.Cond
	timer  *time.Timer
	set    uint64 // number of calls of reset; the timer of an earlier call does nothing
	passed bool
}

// reset sets the deadline. The zero time means none.
func (d *deadline) reset(t time.Time) {
	d.set++
	d.passed = false
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.passed = true
		d.wake.Broadcast()
		return
	}
	mine := d.set
	d.timer = time.AfterFunc(wait, func() {
		d.wake.L.Lock()
		defer d.wake.L.Unlock()
		if d.set == mine {
			d.passed = true
			d.wake.Broadcast()
		}
	})
}

// stream is one direction of a connection, from its writer to its reader. Both directions
// share one mutex, so that a close or a reset changes both at the same time.
type stream struct {
	mu       *sync.Mutex
	canRead  sync.Cond
	canWrite sync.Cond
	delay    time.Duration // from writing to arrival

	data    ring
	arrived int  // bytes of data that can be read; all of it without a delay
	fin     bool // the end of the stream after data has arrived
	rst     bool // a reset after data has arrived

	gone      bool     // the reader has closed its end
	discarded bool     // the one write that succeeds after the reader has closed was made
	refusal   error    // the error of all further writes, after a reset or a close
	writing   bool     // a Write is in progress; others wait, so that writes are not interleaved
	readBy    deadline // deadline of reads
	writeBy   deadline // deadline of writes
}

func newStream(mu *sync.Mutex, delay time.Duration) *stream {
	s := &stream{mu: mu, canRead: sync.Cond{L: mu}, canWrite: sync.Cond{L: mu}, delay: delay}
	s.readBy.wake, s.writeBy.wake = &s.canRead, &s.canWrite
	return s
}

// after calls f, with the mutex held, after d. If d is 0 it calls f now, and the caller must
// hold the mutex. Calls for the same time may come in either order.
func (s *stream) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	})
}

// push adds as much of p as fits and returns that number of bytes. 0 means that the writer must wait.
func (s *stream) push(p []byte, back *stream) int {
	if s.gone {
		// The writer's kernel accepts the bytes, the peer's kernel answers with a
		// reset, and only the next write fails.
		if s.discarded {
			return 0
		}
		s.discarded = true
		s.after(s.delay+back.delay, func() { s.refuse(syscall.EPIPE) })
		return min(len(p), bufferSize)
	}
	k := s.data.write(p)
	s.after(s.delay, func() { s.arrive(k) })
	return k
}

// arrive makes k more bytes readable.
func (s *stream) arrive(k int) {
	// A fin or a reset at the same time may have made these bytes readable already.
	s.arrived = min(s.arrived+k, s.data.n)
	s.canRead.Broadcast()
}

// pull removes data that has arrived.
func (s *stream) pull(p []byte) int {
	k := s.data.read(p[:min(len(p), s.arrived)])
	s.arrived -= k
	s.canWrite.Broadcast()
	return k
}

// finish ends the stream after the written data.
func (s *stream) finish() {
	s.after(s.delay, func() {
		s.fin = true
		s.arrive(s.data.n)
	})
}

// reset sends a reset to the reader, which writes to back. After a fin it only makes the
// reader's writes fail.
func (s *stream) reset(back *stream, finished bool) {
	s.after(s.delay, func() {
		if finished {
			back.refuse(syscall.EPIPE)
			return
		}
		s.rst = true
		s.arrive(s.data.n)
		back.refuse(syscall.ECONNRESET)
	})
}

// refuse makes all further writes fail. The first error stays.
func (s *stream) refuse(err error) {
	if s.refusal == nil {
		s.refusal = err
	}
	s.canWrite.Broadcast()
}

// abort resets the stream at once, without the delay.
func (s *stream) abort() {
	s.rst = !s.fin
	s.arrive(s.data.n)
	s.refuse(syscall.ECONNRESET)
}

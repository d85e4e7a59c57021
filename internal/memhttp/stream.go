package memhttp

import (
	"sync"
	"syscall"
	"time"
)

// bufferSize is how many bytes one direction of a connection holds, in flight
// and unread together, before writes to it block.
const bufferSize = 64 << 10

// A ring is a bounded queue of bytes. It starts small, since most connections
// of a test carry little, and grows to bufferSize. The zero value is empty.
type ring struct {
	buf   []byte
	start int
	n     int
}

// write takes as much of p as fits and says how much that was.
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

// peek copies the oldest bytes into p without taking them.
func (r *ring) peek(p []byte) int {
	p = p[:min(len(p), r.n)]
	k := copy(p, r.buf[r.start:min(r.start+len(p), len(r.buf))])
	copy(p[k:], r.buf)
	return len(p)
}

// read takes the oldest bytes.
func (r *ring) read(p []byte) int {
	k := r.peek(p)
	r.n -= k
	if r.start += k; r.start >= len(r.buf) {
		r.start -= len(r.buf)
	}
	return k
}

// A deadline wakes a condition when a time has come. It is guarded by the
// mutex of the condition.
//
// Whether it has passed is a flag and not a comparison with time.Now: a time
// without a monotonic reading could wake its waiters a moment before the clock
// agrees, and they would go back to sleep for good.
type deadline struct {
	wake   *sync.Cond
	timer  *time.Timer
	set    uint64 // how often it was set; a timer of an earlier setting does nothing
	passed bool
}

// reset replaces whatever was set before. The zero time clears it.
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

// A stream is one direction of a connection, from its writer to its reader.
// The mutex that guards it is shared with the other direction, so that a close
// or a reset, which touches both, happens at once.
type stream struct {
	mu       *sync.Mutex
	canRead  sync.Cond
	canWrite sync.Cond
	delay    time.Duration // from writing to arrival

	data    ring
	arrived int  // of data; all of it unless there is a delay
	fin     bool // arrived: nothing follows data
	rst     bool // arrived: data, then a reset

	gone      bool     // the reader has closed its end
	discarded bool     // the one write that a closed reader cannot yet refuse was made
	refusal   error    // what the writer has learned: a reset, or that the reader is gone
	writing   bool     // a Write is under way; others wait, so that writes do not mix
	readBy    deadline // the reader's
	writeBy   deadline // the writer's
}

func newStream(mu *sync.Mutex, delay time.Duration) *stream {
	s := &stream{mu: mu, canRead: sync.Cond{L: mu}, canWrite: sync.Cond{L: mu}, delay: delay}
	s.readBy.wake, s.writeBy.wake = &s.canRead, &s.canWrite
	return s
}

// after calls f, with the mutex held, once d has passed. With d = 0 that is
// now, and the mutex must be held already.
//
// Two calls that fall on one instant may come in either order, so what they do
// must not depend on it.
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

// push takes what it can of p and says how much that was: 0 means wait.
func (s *stream) push(p []byte, back *stream) int {
	if s.gone {
		// The writer cannot know yet: its kernel takes the bytes, the peer's
		// answers with a reset, and only the next write fails.
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
	// Bytes that a fin or a reset of the same instant has let in count once.
	s.arrived = min(s.arrived+k, s.data.n)
	s.canRead.Broadcast()
}

// pull takes what has arrived.
func (s *stream) pull(p []byte) int {
	k := s.data.read(p[:min(len(p), s.arrived)])
	s.arrived -= k
	s.canWrite.Broadcast()
	return k
}

// finish ends the stream after what was written.
func (s *stream) finish() {
	s.after(s.delay, func() {
		s.fin = true
		s.arrive(s.data.n)
	})
}

// reset tells the reader, which writes to back, that the connection is dead.
// A reset that comes after the writer's fin does not undo what the fin said.
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

// refuse makes all further writes fail. The first reason stays.
func (s *stream) refuse(err error) {
	if s.refusal == nil {
		s.refusal = err
	}
	s.canWrite.Broadcast()
}

// abort is a reset from nowhere, at once in spite of any delay.
func (s *stream) abort() {
	s.rst = !s.fin
	s.arrive(s.data.n)
	s.refuse(syscall.ECONNRESET)
}

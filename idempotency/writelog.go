package idempotency

import "net/http"

const (
	// sniffed is how many bytes net/http looks at for a Content-Type.
	sniffed = 512

	// buffered is the size of net/http's buffer. A shorter body gets a Content-Length,
	// a longer one is chunked, in chunks of that size if the handler's writes are small.
	buffered = 2048

	// bufferedByHTTP2 is the same for HTTP/2.
	bufferedByHTTP2 = 4096

	// maxLog bounds the memory for a handler that flushes each byte. Beyond it the
	// body is still sent whole, in chunks of another size.
	maxLog = 1 << 16
)

// writeOp is something that a handler did.
type writeOp struct {
	what opKind
	n    int64 // bytes
}

type opKind uint8

const (
	// small is any number of writes that net/http buffers.
	small opKind = iota

	// large is a single write that net/http passes on unbuffered.
	large

	// flush sends everything so far.
	flush
)

// writeLog is how a handler wrote a body, as far as net/http would send something
// else if it was written in another way. It follows net/http's buffer.
type writeLog struct {
	ops     []writeOp
	few     [3]writeOp // the first ops: most responses have one
	total   int64
	pending int   // bytes in net/http's buffer
	sent    bool  // net/http would have sent something by now
	flushed bool  // because of a flush
	atFlush int64 // total at the first flush
}

// write follows bufio.Writer.Write.
func (s *writeLog) write(n int) {
	s.total += int64(n)
	for n > buffered-s.pending {
		if s.pending == 0 {
			s.add(large, n)
			s.sent = true
			return
		}
		n -= s.fill()
	}
	s.pending += n
	s.add(small, n)
}

// writeString differs from write: bufio copies long strings through its buffer.
func (s *writeLog) writeString(n int) {
	s.total += int64(n)
	for n > buffered-s.pending {
		n -= s.fill()
	}
	s.pending += n
	s.add(small, n)
}

// fill fills the buffer and sends it.
func (s *writeLog) fill() int {
	n := buffered - s.pending
	s.add(small, n)
	s.pending, s.sent = 0, true
	return n
}

func (s *writeLog) flush() {
	if !s.flushed {
		s.flushed, s.atFlush = true, s.total
	}
	s.pending, s.sent = 0, true
	if last := len(s.ops) - 1; last < 0 || s.ops[last].what != flush {
		s.add(flush, 0)
	}
}

func (s *writeLog) add(what opKind, n int) {
	last := len(s.ops) - 1
	switch {
	case last >= 0 && what == small && s.ops[last].what == small:
		s.ops[last].n += int64(n)
	case last < 0:
		s.ops = append(s.few[:0], writeOp{what, int64(n)})
	case last+1 < maxLog:
		s.ops = append(s.ops, writeOp{what, int64(n)})
	}
}

// replayWrites writes the body to w as the handler wrote it. What the log does not
// contain follows at the end.
func (s *writeLog) replayWrites(w http.ResponseWriter, body *spool) error {
	left := s.total
	for _, a := range s.ops {
		if a.what == flush {
			if err := flushed(w); err != nil {
				return err
			}
			continue
		}
		if err := body.writeTo(w, a.n, a.what == large); err != nil {
			return err
		}
		left -= a.n
	}
	return body.writeTo(w, left, true)
}

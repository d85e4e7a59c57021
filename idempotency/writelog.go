package idempotency

import "net/http"

const (
	// sniffed is how many bytes net/http looks at for a Content-Type.
	sniffed = 512

	// buffered is how many bytes net/http gathers before it sends: what is shorter
	// gets a Content-Length, what is longer is chunked, in chunks of that length
	// where the handler's writes are small.
	buffered = 2048

	// bufferedByHTTP2 is the same for HTTP/2.
	bufferedByHTTP2 = 4096

	// longestScript bounds the memory of a handler that flushes each byte. Beyond
	// it the body still goes out whole, in chunks of another size.
	longestScript = 1 << 16
)

// act is something that a handler did.
type writeOp struct {
	what opKind
	n    int64 // bytes
}

type opKind uint8

const (
	// small writes, which net/http gathers.
	small opKind = iota

	// large: a single write that net/http passes on as it is.
	large

	// flush: everything so far goes out.
	flush
)

// script is how a handler wrote a body: only what net/http would send otherwise
// if it was written in another way. It follows net/http's buffer to tell.
type writeLog struct {
	acts    []writeOp
	few     [3]writeOp // where acts begins: most responses have one
	total   int64
	pending int   // bytes in net/http's buffer
	sent    bool  // net/http would have sent something by now
	flushed bool  // because of a flush
	atFlush int64 // total at the first flush
}

// write is bufio.Writer.Write's arithmetic.
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

// writeString differs in that bufio copies long strings through its buffer.
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
	if last := len(s.acts) - 1; last < 0 || s.acts[last].what != flush {
		s.add(flush, 0)
	}
}

func (s *writeLog) add(what opKind, n int) {
	last := len(s.acts) - 1
	switch {
	case last >= 0 && what == small && s.acts[last].what == small:
		s.acts[last].n += int64(n)
	case last < 0:
		s.acts = append(s.few[:0], writeOp{what, int64(n)})
	case last+1 < longestScript:
		s.acts = append(s.acts, writeOp{what, int64(n)})
	}
}

// perform writes the body to w as it was written. What the script has forgotten
// follows at the end.
func (s *writeLog) replayWrites(w http.ResponseWriter, body *spool) error {
	left := s.total
	for _, a := range s.acts {
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

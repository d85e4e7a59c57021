package idempotency

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// spool keeps a body: the first limit bytes in memory, the rest in a temporary
// file. It is written to its end, and then read once.
type spool struct {
	limit  int64 // negative: none
	most   int64 // the longest body that is kept; 0 or less: any
	memory []byte

	file   *os.File
	filed  int64 // bytes in it
	rest   *bufio.Writer
	lies   bool  // the file has a name still, as the system does not remove open ones
	unread int64 // where writeTo goes on, from the beginning of the body
	err    error
	beyond bool // there is more than limit
}

// Write keeps p, or fails for good.
func (s *spool) Write(p []byte) (int, error) {
	fits := s.room(len(p))
	s.memory = append(s.memory, p[:fits]...)
	if fits == len(p) {
		return fits, nil
	}
	n, err := s.spill(p[fits:])
	return fits + n, err
}

// WriteString keeps p, or fails for good.
func (s *spool) WriteString(p string) (int, error) {
	fits := s.room(len(p))
	s.memory = append(s.memory, p[:fits]...)
	if fits == len(p) {
		return fits, nil
	}
	n, err := s.spill([]byte(p[fits:]))
	return fits + n, err
}

// room is how many of n bytes memory has room for.
func (s *spool) room(n int) int {
	if s.limit < 0 {
		return n
	}
	return int(min(int64(n), s.limit-int64(len(s.memory))))
}

// spill writes what did not fit into memory. Once it has failed the body is lost,
// and what it took of the disk is given back at once.
func (s *spool) spill(p []byte) (n int, err error) {
	s.beyond = true
	if s.err == nil && s.most > 0 && int64(len(s.memory)+len(p))+s.filed > s.most {
		s.err = fmt.Errorf("idempotency: the response has more than %d bytes (MaxSpool)", s.most)
	}
	if s.file == nil && s.err == nil {
		s.open()
	}
	if s.err == nil {
		n, s.err = s.rest.Write(p)
		s.filed += int64(n)
	}
	if s.err != nil {
		s.close()
	}
	return n, s.err
}

// open makes a file that nobody else can open and that is gone when the process
// is, in whatever way it ends. Where an open file cannot be removed, close does.
func (s *spool) open() {
	s.file, s.err = os.CreateTemp("", "idempotency-*")
	if s.err != nil {
		return
	}
	s.lies = os.Remove(s.file.Name()) != nil
	s.rest = bufio.NewWriterSize(s.file, pieceSize)
}

// pieceSize is how much of a file is written, and read, at a time.
const pieceSize = 32 << 10

// writeTo writes the next n bytes to w. whole: in one go, if they are in memory;
// else in pieces that net/http gathers.
func (s *spool) writeTo(w io.Writer, n int64, whole bool) error {
	for n > 0 {
		size := min(n, buffered)
		if whole {
			size = n
		}
		piece, err := s.next(size)
		if err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		n -= int64(len(piece))
	}
	return nil
}

// next is the next n bytes, or fewer.
func (s *spool) next(n int64) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	from, inMemory := s.unread, int64(len(s.memory))
	if from < inMemory {
		s.unread = min(from+n, inMemory)
		return s.memory[from:s.unread], nil
	}
	if s.err = s.rest.Flush(); s.err != nil {
		return nil, s.err
	}
	piece := make([]byte, min(n, pieceSize))
	if _, s.err = s.file.ReadAt(piece, from-inMemory); s.err != nil {
		return nil, s.err
	}
	s.unread += int64(len(piece))
	return piece, nil
}

// close gives the file back.
func (s *spool) close() {
	if s.file == nil {
		return
	}
	_ = s.file.Close()
	if s.lies {
		_ = os.Remove(s.file.Name())
	}
	s.file = nil
}

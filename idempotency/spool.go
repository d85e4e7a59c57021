package idempotency

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// spool keeps a body: the first limit bytes in memory, the rest in a temporary file.
// It is written to its end, and then read once.
type spool struct {
	limit  int64 // negative: none
	most   int64 // the longest body that is kept; 0 or less: any
	memory []byte

	file   *os.File
	filed  int64 // bytes in it
	rest   *bufio.Writer
	named  bool // the file still has a name, because the system does not remove open files
	err    error
	beyond bool // there is more than limit
}

// Write keeps p. After an error it fails each time.
func (s *spool) Write(p []byte) (int, error) { return keep(s, p) }

// WriteString keeps p, like Write.
func (s *spool) WriteString(p string) (int, error) { return keep(s, p) }

func keep[T []byte | string](s *spool, p T) (int, error) {
	fits := s.inMemory(len(p))
	s.memory = append(s.memory, p[:fits]...)
	if fits == len(p) {
		return fits, nil
	}
	n, err := s.spill([]byte(p[fits:]))
	return fits + n, err
}

// inMemory is how many of n bytes are kept in memory.
func (s *spool) inMemory(n int) int {
	if s.limit < 0 {
		return n
	}
	return int(min(int64(n), s.limit-int64(len(s.memory))))
}

// spill writes what does not fit into memory. If it fails, the body is lost and the
// file is removed at once.
func (s *spool) spill(p []byte) (n int, err error) {
	s.beyond = true
	if s.err == nil && s.most > 0 && int64(len(s.memory)+len(p))+s.filed > s.most {
		s.err = fmt.Errorf("idempotency: response is larger than MaxSpool (%d bytes)", s.most)
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

// open makes a private file that disappears with the process. If an open file cannot
// be removed, close removes it.
func (s *spool) open() {
	s.file, s.err = os.CreateTemp("", "idempotency-*")
	if s.err != nil {
		return
	}
	s.named = os.Remove(s.file.Name()) != nil
	s.rest = bufio.NewWriterSize(s.file, pieceSize)
}

// pieceSize is the size of one write of the file.
const pieceSize = 32 << 10

// sendTo writes the body to w.
func (s *spool) sendTo(w io.Writer) error {
	if s.err != nil {
		return s.err
	}
	if len(s.memory) > 0 {
		if _, err := w.Write(s.memory); err != nil {
			return err
		}
	}
	if s.file == nil {
		return nil
	}
	if err := s.rest.Flush(); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(w, s.file, s.filed)
	return err
}

// close removes the file.
func (s *spool) close() {
	if s.file == nil {
		return
	}
	_ = s.file.Close()
	if s.named {
		_ = os.Remove(s.file.Name())
	}
	s.file = nil
}

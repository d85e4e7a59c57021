package faulttest

import (
	"io"
	"time"
)

// QuotaUses is how many credentials q remembers.
func QuotaUses(q *Quota) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.use)
}

// LogMemory is how much l remembers.
func LogMemory(l *Log) (requests, conns int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept), len(l.conns)
}

// SetPatience makes Close of s complain early.
func SetPatience(s *Server, d time.Duration) { s.patience = d }

// ServerLog is where net/http logs.
func ServerLog(s *Server) io.Writer { return s.tcp }

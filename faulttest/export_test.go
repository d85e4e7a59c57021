package faulttest

import "io"

// QuotaKeys returns the number of keys in q's memory.
func QuotaKeys(q *Quota) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.usage)
}

// LogMemory returns the numbers of requests and connections in l's memory.
func LogMemory(l *Log) (requests, conns int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept), len(l.conns)
}

// ServerLog returns the destination of net/http's log.
func ServerLog(s *Server) io.Writer { return s.server.Config.ErrorLog.Writer() }

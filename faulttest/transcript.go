package faulttest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/transcript"
)

// maxRows is the maximum number of requests in a transcript, the latest ones.
const maxRows = 100

// Transcript returns a table of the latest hundred requests. Its columns are the time since the start
// of the Server (or since the first request), the connection, the request, the outcome and the
// duration. Key and time left are columns if any request has them. Failed assertions print it.
func (l *Log) Transcript() string {
	l.mu.Lock()
	begin, total := l.begin, l.total
	l.mu.Unlock()
	requests := l.Requests()
	if len(requests) == 0 {
		return "no requests"
	}
	if len(requests) > maxRows {
		requests = requests[len(requests)-maxRows:]
	}
	columns := []struct {
		title string
		cell  func(*Request) string
	}{
		{"#", func(q *Request) string { return strconv.Itoa(q.Number) }},
		{"at", func(q *Request) string { return transcript.Duration(q.ReceivedAt.Sub(begin)) }},
		{"conn", func(q *Request) string {
			if q.Reused {
				return strconv.Itoa(q.Conn) + " reused"
			}
			return strconv.Itoa(q.Conn)
		}},
		{"request", func(q *Request) string { return q.Method + " " + cut(q.URI, 60) }},
		{"key", func(q *Request) string { return cut(q.Key, 40) }},
		{"time left", func(q *Request) string {
			if q.Deadline.IsZero() {
				return ""
			}
			return transcript.Duration(q.TimeLeft)
		}},
		{"outcome", func(q *Request) string { return q.Outcome() }},
		{"took", func(q *Request) string {
			if q.EndedAt.IsZero() {
				return ""
			}
			return transcript.Duration(q.EndedAt.Sub(q.ReceivedAt))
		}},
	}
	titles, rows := make([]string, len(columns)), make([][]string, len(requests))
	for i, c := range columns {
		titles[i] = c.title
		for j := range requests {
			rows[j] = append(rows[j], c.cell(&requests[j]))
		}
	}
	table := transcript.Table(titles, rows)
	if hidden := total - len(requests); hidden > 0 {
		table += fmt.Sprintf("(%d earlier requests are not shown)\n", hidden)
	}
	return table
}

// cut shortens a text to limit characters by removing its middle.
func cut(text string, limit int) string {
	runes := []rune(strings.ToValidUTF8(text, "?"))
	if len(runes) <= limit {
		return string(runes)
	}
	return string(slices.Concat(runes[:limit/2], []rune("…"), runes[len(runes)-(limit-limit/2-1):]))
}

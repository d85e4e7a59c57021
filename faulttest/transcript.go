package faulttest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
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
	columns := []column{
		{"#", func(q *Request) string { return strconv.Itoa(q.Number) }},
		{"at", func(q *Request) string { return short(q.ReceivedAt.Sub(begin)) }},
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
			return short(q.TimeLeft)
		}},
		{"outcome", func(q *Request) string { return q.Outcome() }},
		{"took", func(q *Request) string {
			if q.EndedAt.IsZero() {
				return ""
			}
			return short(q.EndedAt.Sub(q.ReceivedAt))
		}},
	}
	table := tabulate(columns, requests)
	if hidden := total - len(requests); hidden > 0 {
		table += fmt.Sprintf("(%d earlier requests are not shown)\n", hidden)
	}
	return table
}

type column struct {
	title string
	cell  func(*Request) string
}

// tabulate returns a table without empty columns.
func tabulate(columns []column, requests []Request) string {
	lines := make([]strings.Builder, len(requests)+1)
	for _, c := range columns {
		cells := []string{c.title}
		width, empty := len(c.title), true
		for i := range requests {
			text := c.cell(&requests[i])
			cells = append(cells, text)
			width = max(width, utf8.RuneCountInString(text))
			empty = empty && text == ""
		}
		if empty {
			continue
		}
		for i, text := range cells {
			lines[i].WriteString(text + strings.Repeat(" ", width-utf8.RuneCountInString(text)+2))
		}
	}
	var table strings.Builder
	for i := range lines {
		table.WriteString(strings.TrimRight(lines[i].String(), " ") + "\n")
	}
	return table.String()
}

// cut shortens a text to limit characters by removing its middle.
func cut(text string, limit int) string {
	runes := []rune(strings.ToValidUTF8(text, "?"))
	if len(runes) <= limit {
		return string(runes)
	}
	return string(slices.Concat(runes[:limit/2], []rune("…"), runes[len(runes)-(limit-limit/2-1):]))
}

// short returns d with about three digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for u := time.Second; u > 1; u /= 10 {
		if d.Abs() >= u {
			unit = u / 100
			break
		}
	}
	return d.Round(max(unit, 1)).String()
}

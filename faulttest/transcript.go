package faulttest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxRows is how many requests a transcript shows, the latest ones.
const maxRows = 100

// Transcript tells what happened, as a table with a row for each request: when
// it came (since the Server started or, on other servers, since the first
// request), on which connection, what it was, its key and the time it left if
// any request has them, what came of it, and how long that took. Assertions that
// fail print it. It shows the latest hundred requests.
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

// tabulate makes a table, without the columns that are empty.
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

// cut takes the middle out of what is too long: ends tell more.
func cut(text string, most int) string {
	runes := []rune(strings.ToValidUTF8(text, "?"))
	if len(runes) <= most {
		return string(runes)
	}
	return string(slices.Concat(runes[:most/2], []rune("…"), runes[len(runes)-(most-most/2-1):]))
}

// short is d with three digits or so.
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

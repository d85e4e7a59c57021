package eventstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// events returns the events of a stream that arrives in pieces of the given length.
func events(stream string, piece int, end bool) (all []string) {
	var s Splitter
	add := func(e Event) {
		text := "pending"
		if e.Data != nil {
			text = fmt.Sprintf("%s|%s", e.Name, e.Data)
		}
		all = append(all, text)
	}
	for len(stream) > 0 {
		n := min(piece, len(stream))
		chunk := []byte(stream[:n])
		for e, rest, ok := s.Next(chunk); ok; e, rest, ok = s.Next(rest) {
			add(e)
		}
		clear(chunk) // the Splitter must not need it
		stream = stream[n:]
	}
	if e, ok := s.End(); ok && end {
		add(e)
	}
	return all
}

// S2: the forms that a server may send.
func TestSplitter(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, stream string
		want         []string
	}{
		{"one event", "data: x\n\n", []string{"|x"}},
		{"a named event", "event: error\ndata: {}\n\n", []string{"error|{}"}},
		{"the name after the data", "data: {}\nevent: ping\n\n", []string{"ping|{}"}},
		{"two names: the last", "event: a\nevent: b\ndata: x\n\n", []string{"b|x"}},
		{"CRLF", "event: a\r\ndata: x\r\n\r\ndata: y\r\n\r\n", []string{"a|x", "|y"}},
		{"CR", "event: a\rdata: x\r\rdata: y\r\r", []string{"a|x", "|y"}},
		{"mixed ends of lines", "event: a\rdata: x\r\n\ndata: y\n\r\n", []string{"a|x", "|y"}},
		{"CRLF is one end", "data: x\r\ndata: y\r\n\r\n", []string{"|x\ny"}},
		{"data over several lines", "data: {\ndata:  \"a\": 1\ndata: }\n\n", []string{"|{\n \"a\": 1\n}"}},
		{"an empty line of data", "data: a\ndata:\ndata: b\n\n", []string{"|a\n\nb"}},
		{"no space after the colon", "event:a\ndata:x\n\n", []string{"a|x"}},
		{"only the first space goes", "data:  x \n\n", []string{"| x "}},
		{"colons in data", "data: a: b\n\n", []string{"|a: b"}},
		{"a field without a colon", "data\n\n", []string{"|"}},
		{"empty data", "data:\n\n", []string{"|"}},
		{"a byte order mark", "\ufeffdata: x\n\n", []string{"|x"}},
		{"a second mark is no field", "\ufeff\ufeffdata: x\n\n", []string{"pending"}},
		{"a mark later is no field", "data: x\n\n\ufeffdata: y\n\n", []string{"|x", "pending"}},
		{"a comment", ": keep-alive\n\ndata: x\n\n", []string{"pending", "|x"}},
		{"a comment inside an event", "event: a\n: still there\ndata: x\n\n", []string{"pending", "a|x"}},
		{"other fields", "id: 7\nretry: 10\ndata: x\nsomething: else\n\n", []string{"|x"}},
		{"fields are case-sensitive", "Data: x\n\n", []string{"pending"}},
		{"an event without data is none, and its name is lost", "event: error\n\ndata: x\n\n", []string{"pending", "|x"}},
		{"empty lines are nothing", "\n\r\n\r\n\ndata: x\n\n\n\n", []string{"|x"}},
		{"no empty line at the end", "event: a\ndata: x\n", []string{"a|x"}},
		{"the last line is cut off", "event: a\ndata: x", nil},
		{"the last event has no empty line", "event: a\ndata: x\n", []string{"a|x"}},
		{"a comment at the end", "data: x\n\n: bye", []string{"|x"}},
		{"a name without data at the end", "event: a", nil},
		{"nothing", "", nil},
		{"1 MiB", "data: " + strings.Repeat("x", 1<<20) + "\n\n", []string{"|" + strings.Repeat("x", 1<<20)}},
		{"not UTF-8", "event: \xff\ndata: \xfe\x00\n\n", []string{"\xff|\xfe\x00"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, piece := range []int{1, 2, 3, 7, 4096, len(row.stream) + 1} {
				require.Equal(t, row.want, events(row.stream, piece, true), "in pieces of %d bytes", piece)
			}
		})
	}
}

// The event is there with its empty line, and not only with the LF after a CR.
func TestSplitter_atOnce(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"data: x\n\n", "data: x\r\r", "data: x\r\n\r"} {
		require.Equal(t, []string{"|x"}, events(stream, len(stream), false), "%q", stream)
		require.Empty(t, events(stream[:len(stream)-1], len(stream), false), "%q", stream)
	}
}

// reference splits a whole stream, as WHATWG HTML has its grammar.
func reference(stream string) (all []string) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	name, lines, fields := "", []string(nil), false
	flush := func(end bool) {
		switch {
		case lines != nil:
			all = append(all, name+"|"+strings.Join(lines, "\n"))
		case fields && !end:
			all = append(all, "pending")
		}
		name, lines, fields = "", nil, false
	}
	split := strings.Split(stream, "\n")
	for _, line := range split[:len(split)-1] { // the last one is cut off, or empty
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			flush(false)
		case field == "":
			all = append(all, "pending")
		default:
			fields = true
			if field == "event" {
				name = value
			}
			if field == "data" {
				lines = append(lines, value)
			}
		}
	}
	flush(true)
	return all
}

// FuzzSplitter compares the events with those of the reference, in pieces of any length (S2).
func FuzzSplitter(f *testing.F) {
	f.Add("event: a\r\ndata: x\r\n\r\n", 1)
	f.Add("\ufeff: c\rdata: x\rdata: y\r\r", 2)
	f.Add("event: a\n\ndata\n\ndata: x", 3)
	f.Fuzz(func(t *testing.T, stream string, piece int) {
		piece = max(piece, 1)
		require.Equal(t, reference(stream), events(stream, piece, true))
	})
}

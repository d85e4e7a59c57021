// Package eventstream splits a stream of server-sent events (text/event-stream) into its events, as WHATWG HTML section
// 9.2.6 says. It takes the stream in pieces of any length.
package eventstream

import "bytes"

// Event is an event of a stream.
type Event struct {
	Name string // "" means message

	// Data is the data lines, joined by line feeds. It may be empty. nil means that there is none: a comment, or an
	// event that a client ignores. It is valid until the next call of the Splitter.
	Data []byte
}

// Splitter finds the events of a stream. The zero value is at its beginning. It holds the bytes of the event that is not
// complete.
type Splitter struct {
	begun   bool // the byte order mark can no longer come
	afterCR bool // the last line ended with CR: an LF belongs to it
	fields  bool // the event has a line
	line    []byte
	name    string
	data    []byte // each line with its line feed
}

// Next takes bytes until an event is complete, and returns the rest of them. ok is false if none is.
func (s *Splitter) Next(chunk []byte) (e Event, rest []byte, ok bool) {
	for len(chunk) > 0 {
		if s.afterCR {
			s.afterCR = false
			if chunk[0] == '\n' {
				chunk = chunk[1:]
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			s.line = append(s.line, chunk...)
			break
		}
		s.line = append(s.line, chunk[:end]...)
		s.afterCR = chunk[end] == '\r' // the line is complete, although the LF may come in a later chunk
		chunk = chunk[end+1:]
		if e, ok = s.endLine(); ok {
			return e, chunk, true
		}
	}
	return Event{}, nil, false
}

// End returns the event that the stream did not complete with an empty line. Clients of some APIs read it. A line that is
// cut off does not count.
func (s *Splitter) End() (e Event, ok bool) {
	if len(s.data) == 0 {
		return Event{}, false
	}
	return s.dispatch(), true
}

func (s *Splitter) endLine() (e Event, ok bool) {
	line := s.line
	s.line = s.line[:0]
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	switch {
	case len(line) == 0 && s.fields:
		return s.dispatch(), true
	case len(line) == 0:
		return Event{}, false
	case line[0] == ':':
		return Event{}, true
	}
	s.fields = true
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "event":
		s.name = string(value)
	case "data":
		s.data = append(append(s.data, value...), '\n')
	}
	return Event{}, false
}

func (s *Splitter) dispatch() (e Event) {
	if n := len(s.data); n > 0 {
		e = Event{s.name, s.data[: n-1 : n-1]}
	}
	s.fields, s.name, s.data = false, "", s.data[:0]
	return e
}

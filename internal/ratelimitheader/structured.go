package ratelimitheader

import (
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
	"github.com/resilienthttp/resilienthttp/internal/structured"
)

// This file parses structured fields (RFC 9651): lists and dictionaries of items with
// parameters. It is strict, except that numbers may have more than the RFC's fifteen
// digits, because servers send such counts.

// kind is the type of a bare item.
type kind uint8

const (
	kindNone kind = iota // absent
	kindNumber
	kindString
	kindToken
	kindBytes
	kindOther // a boolean, date, display string or inner list: the value is ignored
)

// bare is a value without its parameters.
type bare struct {
	kind     kind
	text     string            // string, token; byte sequence: the base64 as sent
	number   retryafter.Number // without its sign
	negative bool
}

// count returns a number without its fraction, or unknown if the value is negative or
// not a number.
func (b bare) count() int64 {
	if b.kind != kindNumber || b.negative {
		return unknown
	}
	return b.number.Whole
}

// param is a parameter of a member.
type param struct {
	key   string
	value bare
}

// member is a member of a list or a dictionary.
type member struct {
	key    string // empty in a list
	value  bare
	params []param
}

// param returns the value of a parameter. If it is repeated, the last one counts (RFC
// 9651, section 4.2.3.2).
func (m member) param(key string) bare {
	for _, p := range slices.Backward(m.params) {
		if p.key == key {
			return p.value
		}
	}
	return bare{}
}

// parseList parses one line of a list field (section 4.2.1). ok is false if any part of
// the line is malformed.
func parseList(line string) (members []member, ok bool) { return parseMembers(line, false) }

// parseDictionary parses one line of a dictionary field (section 4.2.2).
func parseDictionary(line string) (members []member, ok bool) { return parseMembers(line, true) }

func parseMembers(line string, dictionary bool) (members []member, ok bool) {
	in := &input{rest: strings.Trim(line, " ")}
	for in.rest != "" {
		if len(members) > 0 {
			if !in.take(',') {
				return nil, false
			}
			in.while(" \t")
		}
		m, ok := in.member(dictionary)
		if !ok {
			return nil, false
		}
		members = append(members, m)
		in.while(" \t")
	}
	return members, true
}

const (
	digits     = "0123456789"
	lower      = "abcdefghijklmnopqrstuvwxyz"
	alpha      = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	keyBytes   = lower + digits + "_-.*"
	tokenBytes = alpha + digits + "!#$%&'*+-.^_`|~:/"
	base64     = alpha + digits + "+/="
)

// input is the part of the line that is not parsed yet.
type input struct{ rest string }

// next reports whether the next byte is one of chars.
func (in *input) next(chars string) bool {
	return in.rest != "" && strings.IndexByte(chars, in.rest[0]) >= 0
}

// take consumes the next byte if it is c.
func (in *input) take(c byte) bool {
	if in.rest == "" || in.rest[0] != c {
		return false
	}
	in.rest = in.rest[1:]
	return true
}

// while consumes and returns the next bytes that are in chars.
func (in *input) while(chars string) string {
	n := 0
	for n < len(in.rest) && strings.IndexByte(chars, in.rest[n]) >= 0 {
		n++
	}
	found := in.rest[:n]
	in.rest = in.rest[n:]
	return found
}

// member parses a member of a list or a dictionary, with its parameters.
func (in *input) member(dictionary bool) (m member, ok bool) {
	if dictionary {
		var p param
		p, ok = in.pair(in.value)
		m.key, m.value = p.key, p.value
	} else {
		m.value, ok = in.value()
	}
	if ok {
		m.params, ok = in.params()
	}
	return m, ok
}

// pair parses a key (section 4.2.3.3) and its value. Without a value it is a boolean, true.
func (in *input) pair(value func() (bare, bool)) (p param, ok bool) {
	if !in.next(lower + "*") {
		return param{}, false
	}
	p = param{in.while(keyBytes), bare{kind: kindOther}}
	if in.take('=') {
		p.value, ok = value()
		return p, ok
	}
	return p, true
}

// params parses parameters (section 4.2.3.2).
func (in *input) params() (params []param, ok bool) {
	for in.take(';') {
		in.while(" ")
		p, ok := in.pair(in.bareItem)
		if !ok {
			return nil, false
		}
		params = append(params, p)
	}
	return params, true
}

// value parses a bare item, or skips an inner list (section 4.2.1.2).
func (in *input) value() (b bare, ok bool) {
	if !in.take('(') {
		return in.bareItem()
	}
	for in.rest != "" {
		in.while(" ")
		if in.take(')') {
			return bare{kind: kindOther}, true
		}
		if _, ok = in.bareItem(); ok {
			_, ok = in.params()
		}
		if !ok || !in.next(" )") {
			break
		}
	}
	return bare{}, false
}

// bareItem parses a bare item (section 4.2.3.1).
func (in *input) bareItem() (b bare, ok bool) {
	b.kind = kindOther
	switch {
	case in.next("-" + digits):
		return in.number()
	case in.next(`"`):
		b.kind = kindString
		b.text, in.rest, ok = structured.String(in.rest)
	case in.next(alpha + "*"):
		b.kind, b.text, ok = kindToken, in.while(tokenBytes), true
	case in.take(':'):
		b.kind, b.text = kindBytes, in.while(base64)
		ok = in.take(':')
	case in.take('?'): // a boolean
		ok = in.take('0') || in.take('1')
	case in.take('@'): // a date, in seconds since the epoch
		_, ok = in.number()
	case in.take('%'): // a display string
		_, in.rest, ok = structured.String(in.rest)
	}
	return b, ok
}

// number parses an integer or a decimal (section 4.2.4).
func (in *input) number() (b bare, ok bool) {
	b.kind, b.negative = kindNumber, in.take('-')
	b.number, ok = retryafter.ParseNumber(in.while(digits + "."))
	return b, ok
}

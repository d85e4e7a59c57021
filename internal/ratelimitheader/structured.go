package ratelimitheader

import (
	"iter"
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
	kindOther  kind = iota // absent, or of a type that is ignored: a negative number, boolean, date, display string
	kindNumber             // at least 0
	kindName               // a string or a token
	kindBytes
)

// bare is a value without its parameters.
type bare struct {
	kind   kind
	text   string // of a name; of bytes: the base64 as sent
	number retryafter.Number
}

// count returns a number without its fraction, or unknown.
func (b bare) count() int64 {
	if b.kind != kindNumber {
		return unknown
	}
	return b.number.Whole
}

// member is a member of a list or a dictionary.
type member struct {
	key    string // "" in a list
	value  bare
	params string // valid, and parsed when they are used
}

// parameters returns the parameters. If one is repeated, the last one counts (RFC 9651, section
// 4.2.3.2).
func (m member) parameters() iter.Seq2[string, bare] {
	return func(yield func(string, bare) bool) {
		for in := (input{rest: m.params}); in.rest != ""; {
			if !yield(in.param()) {
				return
			}
		}
	}
}

// parseMembers parses one line of a list field (section 4.2.1) or of a dictionary field (section
// 4.2.2). ok is false if any part of the line is malformed, as an inner list: no field has one.
func parseMembers(line string, dictionary bool) (members []member, ok bool) {
	in := input{rest: strings.Trim(line, " ")}
	for in.rest != "" {
		if members == nil {
			members = make([]member, 0, 2)
		} else {
			in.need(',')
			in.while(" \t")
		}
		var m member
		if dictionary {
			m.key, m.value = in.pair()
		} else {
			m.value = in.item()
		}
		params := in.rest
		for in.next(";") {
			in.param()
		}
		m.params = params[:len(params)-len(in.rest)]
		in.while(" \t")
		if in.failed {
			return nil, false
		}
		members = append(members, m)
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
type input struct {
	rest   string
	failed bool // the line is malformed; then rest is ""
}

func (in *input) fail() { in.rest, in.failed = "", true }

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

// need consumes c, or fails.
func (in *input) need(c byte) {
	if !in.take(c) {
		in.fail()
	}
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

// param parses a parameter (section 4.2.3.2).
func (in *input) param() (key string, value bare) {
	in.need(';')
	in.while(" ")
	return in.pair()
}

// pair parses a key (section 4.2.3.3) and its value. Without a value it is a boolean, true.
func (in *input) pair() (key string, value bare) {
	if !in.next(lower + "*") {
		in.fail()
	}
	key = in.while(keyBytes)
	if in.take('=') {
		value = in.item()
	}
	return key, value
}

// item parses a bare item (section 4.2.3.1).
func (in *input) item() (b bare) {
	ok := true
	switch {
	case in.next("-" + digits):
		return in.number()
	case in.next(`"`):
		b.kind = kindName
		b.text, in.rest, ok = structured.String(in.rest)
	case in.next(alpha + "*"):
		b.kind, b.text = kindName, in.while(tokenBytes)
	case in.take(':'):
		b.kind, b.text = kindBytes, in.while(base64)
		ok = in.take(':')
	case in.take('?'): // a boolean
		ok = in.take('0') || in.take('1')
	case in.take('@'): // a date, in seconds since the epoch
		in.number()
	case in.take('%'): // a display string
		_, in.rest, ok = structured.String(in.rest)
	default:
		ok = false
	}
	if !ok {
		in.fail()
	}
	return b
}

// number parses an integer or a decimal (section 4.2.4).
func (in *input) number() (b bare) {
	negative := in.take('-')
	n, ok := retryafter.ParseNumber(in.while(digits + "."))
	if !ok {
		in.fail()
	}
	if !negative {
		b = bare{kind: kindNumber, number: n}
	}
	return b
}

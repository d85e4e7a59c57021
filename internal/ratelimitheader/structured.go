package ratelimitheader

import (
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
	"github.com/resilienthttp/resilienthttp/internal/structured"
)

// This file reads structured fields, RFC 9651: lists and dictionaries of items
// with parameters. It is strict, save that numbers may have any number of
// digits, as servers send counts beyond the fifteen digits of the RFC.

// kind is the type of a bare item.
type kind uint8

const (
	kindNone kind = iota // absent
	kindNumber
	kindString
	kindToken
	kindBytes
	kindOther // a boolean, date, display string or inner list: read over
)

// bare is a value without its parameters.
type bare struct {
	kind     kind
	text     string            // string, token; byte sequence: the base64 as sent
	number   retryafter.Number // without its sign
	negative bool
}

// count returns a number without its fraction, or unknown where the value is
// anything else or negative.
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
	key    string // of a dictionary
	value  bare
	params []param
}

// param returns the value of that parameter; of a repeated one the last counts
// (RFC 9651, section 4.2.3.2).
func (m member) param(key string) bare {
	for _, p := range slices.Backward(m.params) {
		if p.key == key {
			return p.value
		}
	}
	return bare{}
}

// parseList reads one line of a list field (section 4.2.1). The result is
// false when the line is malformed anywhere.
func parseList(s string) ([]member, bool) {
	return parseMembers(s, func(in *input) (member, bool) {
		return in.valueAndParams()
	})
}

// parseDictionary reads one line of a dictionary field (section 4.2.2).
func parseDictionary(s string) ([]member, bool) {
	return parseMembers(s, func(in *input) (m member, ok bool) {
		key, ok := in.key()
		if !ok {
			return member{}, false
		}
		if in.take('=') {
			m, ok = in.valueAndParams()
		} else {
			m.value.kind = kindOther // a boolean, true
			m.params, ok = in.params()
		}
		m.key = key
		return m, ok
	})
}

// parseMembers reads members with commas between them.
func parseMembers(s string, next func(*input) (member, bool)) ([]member, bool) {
	in := &input{rest: strings.Trim(s, " ")}
	var members []member
	for in.rest != "" {
		m, ok := next(in)
		if !ok {
			return nil, false
		}
		members = append(members, m)
		in.skip(" \t")
		if in.rest == "" {
			break
		}
		if !in.take(',') {
			return nil, false
		}
		in.skip(" \t")
		if in.rest == "" {
			return nil, false // nothing behind the last comma
		}
	}
	return members, true
}

// input is what is left to be read.
type input struct{ rest string }

// peek returns the next byte, or 0 at the end. No field value contains a 0.
func (in *input) peek() byte {
	if in.rest == "" {
		return 0
	}
	return in.rest[0]
}

// take reads over the next byte if it is c.
func (in *input) take(c byte) bool {
	if in.rest == "" || in.rest[0] != c {
		return false
	}
	in.rest = in.rest[1:]
	return true
}

// skip reads over any of the bytes in cutset.
func (in *input) skip(cutset string) { in.rest = strings.TrimLeft(in.rest, cutset) }

// while reads the longest prefix of bytes that fit.
func (in *input) while(fits func(byte) bool) string {
	i := 0
	for i < len(in.rest) && fits(in.rest[i]) {
		i++
	}
	s := in.rest[:i]
	in.rest = in.rest[i:]
	return s
}

// valueAndParams reads an item or an inner list, with its parameters.
func (in *input) valueAndParams() (m member, ok bool) {
	if in.take('(') {
		ok = in.innerList()
		m.value.kind = kindOther
	} else {
		m.value, ok = in.bareItem()
	}
	if !ok {
		return member{}, false
	}
	m.params, ok = in.params()
	return m, ok
}

// innerList reads over an inner list behind its parenthesis (section 4.2.1.2).
func (in *input) innerList() bool {
	for in.rest != "" {
		in.skip(" ")
		if in.take(')') {
			return true
		}
		if _, ok := in.bareItem(); !ok {
			return false
		}
		if _, ok := in.params(); !ok {
			return false
		}
		if c := in.peek(); c != ' ' && c != ')' {
			return false
		}
	}
	return false
}

// params reads parameters (section 4.2.3.2).
func (in *input) params() ([]param, bool) {
	var params []param
	for in.take(';') {
		in.skip(" ")
		key, ok := in.key()
		if !ok {
			return nil, false
		}
		value := bare{kind: kindOther} // a boolean, true
		if in.take('=') {
			if value, ok = in.bareItem(); !ok {
				return nil, false
			}
		}
		params = append(params, param{key, value})
	}
	return params, true
}

// key reads a key (section 4.2.3.3).
func (in *input) key() (string, bool) {
	if c := in.peek(); !isLower(c) && c != '*' {
		return "", false
	}
	return in.while(func(c byte) bool {
		return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
	}), true
}

// bareItem reads a value (section 4.2.3.1).
func (in *input) bareItem() (bare, bool) {
	switch c := in.peek(); {
	case c == '-' || isDigit(c):
		return in.number()
	case c == '"':
		text, ok := in.quoted()
		return bare{kind: kindString, text: text}, ok
	case c == '*' || isAlpha(c):
		return bare{kind: kindToken, text: in.while(isTokenByte)}, true
	case c == ':':
		in.take(':')
		text := in.while(isBase64)
		return bare{kind: kindBytes, text: text}, in.take(':')
	case c == '?':
		in.take('?')
		return bare{kind: kindOther}, in.take('0') || in.take('1')
	case c == '@': // a date, in seconds since the epoch
		in.take('@')
		_, ok := in.number()
		return bare{kind: kindOther}, ok
	case c == '%': // a display string
		in.take('%')
		_, ok := in.quoted()
		return bare{kind: kindOther}, ok
	}
	return bare{}, false
}

// number reads an integer or a decimal (section 4.2.4).
func (in *input) number() (bare, bool) {
	negative := in.take('-')
	n, ok := retryafter.ParseNumber(in.while(func(c byte) bool { return isDigit(c) || c == '.' }))
	return bare{kind: kindNumber, number: n, negative: negative}, ok
}

// quoted reads a string (section 4.2.5).
func (in *input) quoted() (text string, ok bool) {
	text, in.rest, ok = structured.String(in.rest)
	return text, ok
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isAlpha(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' }

// isTokenByte reports whether c may stand in a token (section 4.2.6).
func isTokenByte(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func isBase64(c byte) bool {
	return isAlpha(c) || isDigit(c) || c == '+' || c == '/' || c == '='
}

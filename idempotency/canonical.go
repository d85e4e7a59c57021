package idempotency

import (
	"bytes"
	"crypto/sha256"
	"math"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// deepest is the limit of encoding/json.
	deepest = 10000

	// maxInline is the maximum length of a container's text in the output. A longer one is
	// replaced by its hash, so the work of sorting is linear for any nesting.
	maxInline = 512

	// hashed is the first byte of a container's hash. No JSON text begins with it.
	hashed = '#'
)

// canonicalJSON returns a text that is the same for JSON texts of the same structure, and
// different for others: no white space, sorted members, one form of escapes, numbers
// unchanged, long containers replaced by their hash. It is never longer than the body.
// Time and memory are a small multiple of the body's size.
//
// ok is false if the body is not JSON, or ambiguous: duplicate members, lone surrogates,
// invalid UTF-8, or nesting that encoding/json does not read.
func canonicalJSON(body []byte) (text []byte, ok bool) {
	if uint64(len(body)) > math.MaxUint32 {
		return nil, false // member has 32-bit offsets
	}
	c := canonicalizer{in: body, out: make([]byte, 0, len(body))}
	if !c.run() {
		return nil, false
	}
	return c.out, true
}

// canonicalizer reads in and appends to out. It does not recurse.
type canonicalizer struct {
	in  []byte
	pos int
	out []byte

	open    []container
	members []member // of all open objects, the innermost's last
	moved   []byte
}

// container is an open array or object.
type container struct {
	start   int  // in out
	members int  // where its members begin; negative for an array
	sorted  bool // so far
}

// member is the position of a member in out: the name from start to name, the value from
// there to end.
type member struct{ start, name, end uint32 }

// run reads one JSON text.
func (c *canonicalizer) run() bool {
	for {
		opened, ok := c.value()
		if !ok {
			return false
		}
		if opened {
			continue // its first value is next
		}
		if ok = c.closeAll(); !ok {
			return false
		}
		if len(c.open) == 0 {
			c.blanks()
			return c.pos == len(c.in)
		}
	}
}

// value reads a scalar or an empty container, or opens another container.
func (c *canonicalizer) value() (opened, ok bool) {
	switch b := c.peek(); b {
	case '{':
		return c.begin('}', len(c.members))
	case '[':
		return c.begin(']', -1)
	case '"':
		return false, c.string()
	case 't':
		return false, c.literal("true")
	case 'f':
		return false, c.literal("false")
	case 'n':
		return false, c.literal("null")
	default:
		return false, c.number()
	}
}

// begin opens a container, of which an empty one is closed at once.
func (c *canonicalizer) begin(closing byte, members int) (opened, ok bool) {
	if len(c.open) == deepest {
		return false, false
	}
	start := len(c.out)
	c.take()
	if c.peek() == closing {
		c.take()
		return false, true
	}
	c.open = append(c.open, container{start, members, true})
	return true, members < 0 || c.name()
}

// closeAll reads what follows a value: a comma and, in an object, the next name; or the
// ends of all containers that end here.
func (c *canonicalizer) closeAll() bool {
	for len(c.open) > 0 {
		top := &c.open[len(c.open)-1]
		object := top.members >= 0
		if object {
			c.members[len(c.members)-1].end = uint32(len(c.out))
		}
		switch c.peek() {
		case ',':
			c.take()
			return !object || c.name()
		case ']':
			if object {
				return false
			}
		case '}':
			if !object || !c.sort(top) {
				return false
			}
		default:
			return false
		}
		c.take()
		c.shorten(top.start)
		c.open = c.open[:len(c.open)-1]
	}
	return true
}

// shorten replaces a long container by its hash.
func (c *canonicalizer) shorten(start int) {
	if len(c.out)-start > maxInline {
		sum := sha256.Sum256(c.out[start:])
		c.out = append(append(c.out[:start], hashed), sum[:]...)
	}
}

// name reads a member's name and the colon.
func (c *canonicalizer) name() bool {
	start := len(c.out)
	if c.peek() != '"' || !c.string() {
		return false
	}
	m := member{start: uint32(start), name: uint32(len(c.out))}
	if c.peek() != ':' {
		return false
	}
	c.take()
	top := &c.open[len(c.open)-1]
	if top.sorted && len(c.members) > top.members {
		top.sorted = c.compare(c.members[len(c.members)-1], m) < 0
	}
	c.members = append(c.members, m)
	return true
}

func (c *canonicalizer) compare(a, b member) int {
	return bytes.Compare(c.out[a.start:a.name], c.out[b.start:b.name])
}

// sort sorts the members of an object that ends, and removes them from the list. It returns
// false if two have the same name.
func (c *canonicalizer) sort(top *container) bool {
	members := c.members[top.members:]
	c.members = c.members[:top.members]
	if top.sorted {
		return true
	}
	slices.SortFunc(members, c.compare)
	c.moved = c.moved[:0]
	for n, m := range members {
		if n > 0 {
			if c.compare(members[n-1], m) == 0 {
				return false
			}
			c.moved = append(c.moved, ',')
		}
		c.moved = append(c.moved, c.out[m.start:m.end]...)
	}
	copy(c.out[top.start+1:], c.moved)
	return true
}

// peek returns the next byte that is not white space, or 0 at the end.
func (c *canonicalizer) peek() byte {
	c.blanks()
	if c.pos == len(c.in) {
		return 0
	}
	return c.in[c.pos]
}

func (c *canonicalizer) blanks() {
	for c.pos < len(c.in) {
		switch c.in[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// take copies the next byte.
func (c *canonicalizer) take() {
	c.out = append(c.out, c.in[c.pos])
	c.pos++
}

func (c *canonicalizer) literal(s string) bool {
	if !bytes.HasPrefix(c.in[c.pos:], []byte(s)) {
		return false
	}
	c.out = append(c.out, s...)
	c.pos += len(s)
	return true
}

// number copies a number's text (RFC 8259, section 6).
func (c *canonicalizer) number() bool {
	start := c.pos
	_ = c.skip('-', '-')
	if !c.skip('0', '0') && !c.digits() {
		return false
	}
	if c.skip('.', '.') && !c.digits() {
		return false
	}
	if c.skip('e', 'E') {
		_ = c.skip('+', '-')
		if !c.digits() {
			return false
		}
	}
	c.out = append(c.out, c.in[start:c.pos]...)
	return true
}

// string reads a string, and writes each character in one form.
func (c *canonicalizer) string() bool {
	c.take()
	for {
		run := c.pos
		c.pos += plain(c.in[run:])
		if c.pos == len(c.in) {
			return false
		}
		switch b := c.in[c.pos]; {
		case b == '"':
			c.pos++
			c.out = append(c.out, c.in[run:c.pos]...)
			return true
		case b == '\\':
			c.out = append(c.out, c.in[run:c.pos]...)
			if !c.escape() {
				return false
			}
		default:
			return false // a control character, or not UTF-8
		}
	}
}

// plain returns the number of bytes that are written unchanged.
func plain(b []byte) int {
	for n := 0; n < len(b); {
		switch {
		case b[n] >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(b[n:])
			if r == utf8.RuneError && size == 1 {
				return n
			}
			n += size
		case b[n] < ' ', b[n] == '"', b[n] == '\\':
			return n
		default:
			n++
		}
	}
	return len(b)
}

// escape reads a character behind a backslash.
func (c *canonicalizer) escape() bool {
	if len(c.in)-c.pos < 2 {
		return false
	}
	b := c.in[c.pos+1]
	c.pos += 2
	switch b {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		c.out = append(c.out, '\\', b)
		return true
	case '/':
		c.out = append(c.out, b)
		return true
	case 'u':
		return c.codePoint()
	}
	return false
}

// codePoint reads the digits behind \u, and the second half of a pair.
func (c *canonicalizer) codePoint() bool {
	r, ok := c.hex()
	if !ok {
		return false
	}
	if utf16.IsSurrogate(r) {
		if !bytes.HasPrefix(c.in[c.pos:], []byte(`\u`)) {
			return false
		}
		c.pos += 2
		low, ok := c.hex()
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return false
		}
	}
	c.character(r)
	return true
}

func (c *canonicalizer) hex() (r rune, ok bool) {
	if len(c.in)-c.pos < 4 {
		return 0, false
	}
	for _, b := range c.in[c.pos : c.pos+4] {
		switch {
		case b >= '0' && b <= '9':
			r = r<<4 | rune(b-'0')
		case b >= 'a' && b <= 'f':
			r = r<<4 | rune(b-'a'+10)
		case b >= 'A' && b <= 'F':
			r = r<<4 | rune(b-'A'+10)
		default:
			return 0, false
		}
	}
	c.pos += 4
	return r, true
}

// character writes an escaped character in its one form: unescaped if possible, otherwise
// in the shortest way.
func (c *canonicalizer) character(r rune) {
	if r >= ' ' && r != '"' && r != '\\' {
		c.out = utf8.AppendRune(c.out, r)
		return
	}
	const short, letters, digits = "\b\f\n\r\t\"\\", `bfnrt"\`, "0123456789abcdef"
	if n := strings.IndexRune(short, r); n >= 0 {
		c.out = append(c.out, '\\', letters[n])
		return
	}
	c.out = append(c.out, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
}

// digits skips one or more digits.
func (c *canonicalizer) digits() bool {
	start := c.pos
	for c.pos < len(c.in) && c.in[c.pos] >= '0' && c.in[c.pos] <= '9' {
		c.pos++
	}
	return c.pos > start
}

// skip skips the next byte if it is one of the two.
func (c *canonicalizer) skip(a, b byte) bool {
	if c.pos == len(c.in) || c.in[c.pos] != a && c.in[c.pos] != b {
		return false
	}
	c.pos++
	return true
}

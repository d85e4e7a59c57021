package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"net/textproto"
	"slices"
	"strings"
)

// maxBoundary is the limit of RFC 2046, section 5.1.1.
const maxBoundary = 70

// sumOfParts hashes a multipart body without its boundary. It accepts the form that
// programs write: CRLF line ends, and nothing before, between and after the parts. ok is
// false for bodies that readers could split in different ways.
func sumOfParts(body []byte, boundary string) (sum []byte, ok bool) {
	if boundary == "" || len(boundary) > maxBoundary {
		return nil, false
	}
	p := parts{sum: sha256.New(), delimiter: []byte("\r\n--" + boundary)}
	rest, ok := bytes.CutPrefix(body, p.delimiter[2:])
	if !ok {
		return nil, false
	}
	for {
		if end, last := bytes.CutPrefix(rest, []byte("--")); last {
			return p.sum.Sum(nil), len(end) == 0 || string(end) == "\r\n"
		}
		if rest, ok = bytes.CutPrefix(rest, []byte("\r\n")); !ok {
			return nil, false
		}
		if rest, ok = p.next(rest); !ok {
			return nil, false
		}
	}
}

// parts hashes one part after the other.
type parts struct {
	sum       hash.Hash
	delimiter []byte
	fields    [][2]string // of the current part
	head      []byte
}

// next hashes the first part of body, and returns what follows its delimiter.
func (p *parts) next(body []byte) (rest []byte, ok bool) {
	p.fields = p.fields[:0]
	for {
		line, rest, found := bytes.Cut(body, []byte("\r\n"))
		if !found {
			return nil, false
		}
		if body = rest; len(line) == 0 {
			break
		}
		if !p.field(line) {
			return nil, false
		}
	}
	content, rest, found := bytes.Cut(body, p.delimiter)
	if !found {
		return nil, false
	}
	p.write(content)
	return rest, true
}

// field keeps a line of the part's header. It rejects continuation lines, stray line ends
// and NUL.
func (p *parts) field(line []byte) bool {
	name, value, found := strings.Cut(string(line), ":")
	if !found || name == "" || strings.ContainsAny(name, " \t\r\n\x00") || strings.ContainsAny(value, "\r\n\x00") {
		return false
	}
	p.fields = append(p.fields, [2]string{textproto.CanonicalMIMEHeaderKey(name), textproto.TrimString(value)})
	return true
}

// write hashes the part. The order of fields of different names does not matter.
func (p *parts) write(content []byte) {
	slices.SortStableFunc(p.fields, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	p.head = binary.AppendUvarint(p.head[:0], uint64(len(p.fields)))
	for _, f := range p.fields {
		p.head = appendText(p.head, f[0])
		p.head = appendTexts(p.head, fieldText(f[0], f[1]))
	}
	p.head = binary.AppendUvarint(p.head, uint64(len(content)))
	p.sum.Write(p.head)
	p.sum.Write(content)
}

// fieldText returns a field's value, with sorted parameters if it has any.
func fieldText(name, value string) []string {
	if name == "Content-Disposition" || name == "Content-Type" {
		if kind, params, ok := parseMedia(value); ok {
			return mediaText(kind, params)
		}
	}
	return []string{value}
}

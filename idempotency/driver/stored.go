package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Begun returns the record of an execution that begins at now. before is the
// record that it replaces, or nil.
func (c *Claim) Begun(before *Record, now time.Time) Record {
	r := Record{
		ID: c.ID, Fingerprint: c.Fingerprint, Status: InProgress, Owner: c.Owner, Generation: 1, Takeover: c.Takeover,
		Started: now, Updated: now, LeaseExpires: now.Add(c.Lease), Expires: now.Add(c.TTL),
	}
	if before != nil {
		r.Generation = before.Generation + 1
	}
	return r
}

// Stored returns the part of the result that a store keeps. It is empty for a
// status that is not replayed.
func (o *Outcome) Stored() Result {
	if o.Status == Completed || o.Status == FailedFinal {
		return o.Result
	}
	return Result{}
}

// Pages returns the records of a scope, or of all scopes if scope is empty. read
// returns up to limit records that follow after in the order of scope, operation
// and key. It may return records of later scopes, which Pages skips.
func Pages(scope string, limit int, read func(after ID, limit int) ([]Record, error)) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		after := ID{Scope: scope} // no key is empty
		for {
			page, err := read(after, limit)
			if err != nil {
				yield(Record{}, err)
				return
			}
			for i := range page {
				if scope != "" && page[i].Scope != scope || !yield(page[i], nil) {
					return
				}
			}
			if len(page) < limit {
				return
			}
			after = page[len(page)-1].ID
		}
	}
}

// EncodeHeader encodes a header as a JSON object. The bytes of a value need not be
// UTF-8: each byte becomes the code point of the same number. A nil header is nil.
func EncodeHeader(h http.Header) ([]byte, error) {
	if h == nil {
		return nil, nil
	}
	if text, ok := encodePlain(h); ok {
		return text, nil
	}
	return json.Marshal(mapHeader(h, bytesToRunes))
}

// encodePlain is json.Marshal for a header that decodePlain can decode.
func encodePlain(h http.Header) ([]byte, bool) {
	text := append(make([]byte, 0, 256), '{')
	ok := len(h) > 0
	quote := func(s string, before string) {
		for i := range len(s) {
			ok = ok && s[i] >= ' ' && s[i] < 0x7f && s[i] != '"' && s[i] != '\\'
		}
		text = append(append(append(append(text, before...), '"'), s...), '"')
	}
	for i, name := range slices.Sorted(maps.Keys(h)) {
		quote(name, ","[:min(i, 1)])
		ok = ok && len(h[name]) > 0
		for i, value := range h[name] {
			quote(value, []string{":[", ","}[min(i, 1)])
		}
		text = append(text, ']')
	}
	return append(text, '}'), ok
}

// DecodeHeader decodes the result of EncodeHeader.
func DecodeHeader(text []byte) (h http.Header, err error) {
	if text == nil {
		return nil, nil
	}
	if h, ok := decodePlain(string(text)); ok {
		return h, nil
	}
	if err = json.Unmarshal(text, &h); err == nil && h == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return nil, fmt.Errorf("idempotency: decode a stored header: %w", err)
	}
	return mapHeader(h, runesToBytes), nil
}

// decodePlain decodes a header of printable ASCII without escapes and nulls, the usual
// case, with a tenth of the time of encoding/json. It reports whether text is one.
func decodePlain(text string) (http.Header, bool) {
	next := func(token byte) bool {
		if text == "" || text[0] != token {
			return false
		}
		text = text[1:]
		return true
	}
	quoted := func() (s string, ok bool) {
		if !next('"') {
			return "", false
		}
		s, text, ok = strings.Cut(text, `"`)
		return s, ok
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] >= 0x7f || text[i] == '\\' {
			return nil, false
		}
	}
	if !next('{') {
		return nil, false
	}
	h := make(http.Header, strings.Count(text, ":["))
	for ok := true; ok; ok = next(',') {
		name, named := quoted()
		if !named || !next(':') {
			return nil, false
		}
		var values []string
		for ok := next('['); ok; ok = next(',') {
			value, found := quoted()
			if !found {
				return nil, false
			}
			values = append(values, value)
		}
		if values == nil || !next(']') {
			return nil, false
		}
		h[name] = values
	}
	return h, next('}') && text == ""
}

// mapHeader applies f to all names and values. It returns a header of ASCII, the
// usual case, unchanged.
func mapHeader(h http.Header, f func(string) string) http.Header {
	if isASCII(h) {
		return h
	}
	mapped := make(http.Header, len(h))
	for name, values := range h {
		name = f(name)
		mapped[name] = nil
		if values != nil {
			mapped[name] = make([]string, len(values))
		}
		for i, v := range values {
			mapped[name][i] = f(v)
		}
	}
	return mapped
}

func isASCII(h http.Header) bool {
	ascii := func(s string) bool {
		for i := range len(s) {
			if s[i] >= 0x80 {
				return false
			}
		}
		return true
	}
	for name, values := range h {
		if !ascii(name) {
			return false
		}
		for _, v := range values {
			if !ascii(v) {
				return false
			}
		}
	}
	return true
}

func bytesToRunes(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func runesToBytes(s string) string {
	bytes := make([]byte, 0, len(s))
	for _, r := range s {
		bytes = append(bytes, byte(r))
	}
	return string(bytes)
}

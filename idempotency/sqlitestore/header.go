package sqlitestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// headerVersion is the first byte of an encoded header.
const headerVersion = 1

var errHeader = errors.New("sqlitestore: a stored header is damaged")

// encodeHeader makes bytes of a header: its version, and then, each number a
// uvarint and each string behind its length, the number of fields and for each
// its name, one more than the number of its values (0: the list is nil), and
// these. A nil header is nil.
//
// It is not JSON, which would replace what is not UTF-8, and HTTP allows such
// bytes in values.
func encodeHeader(h http.Header) []byte {
	if h == nil {
		return nil
	}
	b := binary.AppendUvarint([]byte{headerVersion}, uint64(len(h)))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		b = appendString(b, name)
		values := h[name]
		if values == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(values))+1)
		for _, value := range values {
			b = appendString(b, value)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeHeader is the inverse of encodeHeader. It trusts no number that it reads:
// memory is taken only for what is there.
func decodeHeader(b []byte) (http.Header, error) {
	if b == nil {
		return nil, nil
	}
	if len(b) == 0 || b[0] != headerVersion {
		return nil, fmt.Errorf("%w: of no known version", errHeader)
	}
	r := headerReader{rest: b[1:]}
	fields := r.number()
	h := make(http.Header, min(fields, uint64(len(r.rest))/2))
	for range fields {
		name := r.text()
		values := r.values()
		if r.bad {
			break
		}
		h[name] = values
	}
	if r.bad || len(r.rest) > 0 || uint64(len(h)) != fields {
		return nil, fmt.Errorf("%w: of %d bytes", errHeader, len(b))
	}
	return h, nil
}

// headerReader takes an encoded header apart. Once it is bad, all it reads is
// empty.
type headerReader struct {
	rest []byte
	bad  bool
}

func (r *headerReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *headerReader) text() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *headerReader) values() []string {
	n := r.number()
	if n == 0 {
		return nil
	}
	n--
	if n > uint64(len(r.rest)) { // each takes at least a byte
		r.bad, r.rest = true, nil
		return nil
	}
	values := make([]string, 0, n)
	for range n {
		values = append(values, r.text())
	}
	return values
}

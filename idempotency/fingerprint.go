package idempotency

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
)

// The versions of the rule below. Version 2 is for requests with a repeated query name: version 1 ignored the order of
// its values.
const (
	version  = "v1:"
	version2 = "v2:"
)

// NewFingerprint returns the fingerprint of a message from its parts, such as a type, a
// tenant and a payload. ("ab", "c") and ("a", "bc") are different.
func NewFingerprint(parts ...[]byte) Fingerprint {
	h := sha256.New()
	h.Write(appendText(nil, "parts"))
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write(p)
	}
	return fingerprint(h.Sum(nil))
}

// RequestFingerprint returns the fingerprint of a request and its body, which has been
// read. It covers method, path, query, Content-Type, Content-Encoding and body, but
// neither the host nor other header fields.
//
// The order of query names does not matter, and that of the values of one name does (since
// version 2; a record of version 1 is compared without it). JSON (application/json and +json)
// is compared by structure: the order of members, white space and string escapes do not
// matter, but the text of numbers does (1.0 is not 1). Multipart is compared part by
// part, without the boundary. Everything else, JSON and multipart that are malformed or
// ambiguous (duplicate members, lone surrogates, invalid UTF-8), and bodies with a
// Content-Encoding are compared byte by byte.
func RequestFingerprint(r *http.Request, body []byte) Fingerprint {
	f := requestFingerprint(r, body, false)
	if values, err := url.ParseQuery(r.URL.RawQuery); err == nil && len(values) > 0 {
		for _, list := range values {
			if len(list) > 1 {
				ordered := requestFingerprint(r, body, true)
				return version2 + ordered[len(version):] + ":" + f[len(version):]
			}
		}
	}
	return f
}

// requestFingerprint is RequestFingerprint of version 1, or with the values of each query name in order.
func requestFingerprint(r *http.Request, body []byte, ordered bool) Fingerprint {
	head := appendText(make([]byte, 0, 256), "request")
	head = appendText(head, cmp.Or(r.Method, http.MethodGet))
	head = appendText(head, cmp.Or(r.URL.EscapedPath(), r.URL.Opaque))
	head = appendQuery(head, r.URL.RawQuery, ordered)
	codings := r.Header["Content-Encoding"]
	head = appendTexts(head, codings)
	m := mediaOf(r.Header["Content-Type"])
	head = appendTexts(head, m.text)

	if len(codings) == 0 {
		switch m.form {
		case formJSON:
			if text, ok := canonicalJSON(body); ok {
				return sumOf(appendText(head, "json"), text)
			}
		case formMultipart:
			if sum, ok := sumOfParts(body, m.boundary); ok {
				return sumOf(appendText(head, "multipart"), sum)
			}
		case formBytes:
		}
	}
	return sumOf(appendText(head, "bytes"), body)
}

// sumOf hashes head, which encodes its own end, and body.
func sumOf(head, body []byte) Fingerprint {
	h := sha256.New()
	h.Write(head)
	h.Write(body)
	return fingerprint(h.Sum(head[:0]))
}

func fingerprint(sum []byte) Fingerprint {
	var text [len(version) + 2*sha256.Size]byte
	return Fingerprint(hex.AppendEncode(append(text[:0], version...), sum))
}

// appendQuery appends the pairs of a query, sorted. ordered keeps the order of the values of a name.
func appendQuery(b []byte, raw string, ordered bool) []byte {
	if raw == "" {
		return appendTexts(appendText(b, "pairs"), nil)
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return appendText(appendText(b, "query"), raw)
	}
	type pair struct{ name, value string }
	var pairs []pair
	for name, list := range values {
		for _, value := range list {
			pairs = append(pairs, pair{name, value})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if byName := cmp.Compare(a.name, b.name); byName != 0 || ordered {
			return byName
		}
		return cmp.Compare(a.value, b.value)
	})
	b = appendText(b, "pairs")
	b = binary.AppendUvarint(b, uint64(2*len(pairs)))
	for _, p := range pairs {
		b = appendText(appendText(b, p.name), p.value)
	}
	return b
}

// appendText appends a string with its length.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendTexts appends a list with its length.
func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

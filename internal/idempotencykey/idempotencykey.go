// Package idempotencykey has the rules for idempotency keys that the client and the server
// share. Its functions are pure and safe for concurrent use.
package idempotencykey

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
)

// MaxLength is the maximum length of a key in characters, as for Stripe and most others.
const MaxLength = 255

// Parse returns the key in a field's value. A bare key and the same key as a structured-field
// string (IETF draft) are equal; parameters after the string are ignored. A value that
// begins with a quote but is not such a string is a bare key, because the client may not
// know structured fields. A value with a comma outside of quotes is a bare key too.
func Parse(value string) (string, error) {
	key := strings.Trim(value, " \t")
	if text, rest, ok := field.String(key); ok && (rest == "" || rest[0] == ';') {
		key = text
	}
	if err := check(key); err != nil {
		return "", err
	}
	return key, nil
}

// Check returns an error if the key cannot be sent unquoted: Parse would reject it or trim
// its blanks.
func Check(key string) error {
	if err := check(key); err != nil {
		return err
	}
	if key[0] == ' ' || key[len(key)-1] == ' ' {
		return errors.New("has a space at its end")
	}
	_, err := Parse(key)
	return err
}

// ForOrigin returns the key of a request that a redirect has led to another origin. The caller's own key does not go there,
// but a repetition of the call has the same one again.
func ForOrigin(key string, u *url.URL) string {
	return Derived(nil, key, hostmatch.Origin(u))
}

// Hash returns a short hash of a key for logs. Client and server log the same hash, so that
// their records can be joined while the key stays secret.
func Hash(key string) string {
	hash := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(hash[:6])
}

// check rejects keys that header parsers on the way could change: those that are too long,
// blank, or not visible ASCII. Its errors continue after the caller's name for the key, and do not contain it.
func check(key string) error {
	if len(key) > MaxLength {
		return fmt.Errorf("has %d characters, more than %d", len(key), MaxLength)
	}
	if n := strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' }); n >= 0 {
		return fmt.Errorf("has a character that is not visible ASCII at position %d", n)
	}
	if strings.Trim(key, " ") == "" {
		return errors.New("has no visible character")
	}
	return nil
}

// Derived returns a key of 40 characters that is a hash of the texts and the tail. All
// providers accept that length (Square's limit is 45). ("ab", "c") and ("a", "bc") have
// different keys. The result for the same input must never change, because providers store
// it.
func Derived(tail []byte, texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		h.Write([]byte(text))
	}
	h.Write(tail)
	return hex.EncodeToString(h.Sum(nil)[:20])
}

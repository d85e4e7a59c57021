// Package idempotencykey holds the rules of idempotency keys that the client and
// the server must agree on: what the one sends, the other takes.
package idempotencykey

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/structured"
)

// Longest is what Stripe and most others accept, in characters.
const Longest = 255

// Errors begin with a verb, so that they say something behind whatever the key is
// called there. They never hold the key.
var errBlank = errors.New("has no visible character")

// Parse reads the key from a field's value. A bare key and one in quotes, as the
// structured-field string that the IETF draft asks for, are the same key;
// parameters behind the quotes are not looked at. What begins with a quote and is
// no such string is a bare key: a client that knows nothing of structured fields
// may have sent it. So is what has a comma in it.
func Parse(field string) (string, error) {
	key := strings.Trim(field, " \t")
	if text, rest, ok := structured.String(key); ok && (rest == "" || rest[0] == ';') {
		key = text
	}
	if err := check(key); err != nil {
		return "", err
	}
	return key, nil
}

// Check says what is wrong with a key that is about to be sent as it is: Parse
// would refuse it, or would not see the blanks at its ends.
func Check(key string) error {
	if err := check(key); err != nil {
		return err
	}
	if key[0] == ' ' || key[len(key)-1] == ' ' {
		return errors.New("has a space at its end")
	}
	if _, err := Parse(key); err != nil {
		return err
	}
	return nil
}

// Hash is a short hash of a key, for logs: client and server write the same, so
// that their records can be joined, and the key stays a secret.
func Hash(key string) string {
	hash := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(hash[:6])
}

// check refuses what cannot be told apart reliably once it has been through
// header parsers on the way.
func check(key string) error {
	if len(key) > Longest {
		return fmt.Errorf("has %d characters, more than %d", len(key), Longest)
	}
	for n := range len(key) {
		if c := key[n]; c < ' ' || c > '~' {
			return fmt.Errorf("has a character that is not visible ASCII at position %d", n)
		}
	}
	if strings.Trim(key, " ") == "" {
		return errBlank
	}
	return nil
}

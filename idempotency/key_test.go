package idempotency

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The forms of a key have their tests beside their parser, in
// internal/idempotencykey.
func TestKeyFrom(t *testing.T) {
	const name = "Idempotency-Key"
	for _, row := range []struct {
		name   string
		header http.Header
		want   string
		err    string // "": none; "absent": errNoKey
	}{
		{"bare", http.Header{name: {"order-7"}}, "order-7", ""},
		{"quoted", http.Header{name: {`"order-7"`}}, "order-7", ""},
		{"absent", http.Header{"Other": {"order-7"}}, "", "absent"},
		{"no header", nil, "", "absent"},
		{"a name without values", http.Header{name: {}}, "", "absent"},
		{"empty", http.Header{name: {""}}, "", "Idempotency-Key has no visible character"},
		{"twice", http.Header{name: {"a", "b"}}, "", "Idempotency-Key is there more than once"},
		{"twice the same", http.Header{name: {"a", "a"}}, "", "Idempotency-Key is there more than once"},
		{"one of two is empty", http.Header{name: {"a", ""}}, "", "Idempotency-Key is there more than once"},
		{"too long", http.Header{name: {strings.Repeat("secret", 50)}}, "", "Idempotency-Key has 300 characters, more than 255"},
		{"NUL", http.Header{name: {"secret\x00"}}, "", "Idempotency-Key has a character that is not visible ASCII at position 6"},
	} {
		t.Run(row.name, func(t *testing.T) {
			key, err := keyFrom(row.header, name)
			require.Equal(t, row.want, key)
			switch row.err {
			case "":
				require.NoError(t, err)
			case "absent":
				require.ErrorIs(t, err, errNoKey)
			default:
				var e *keyError
				require.ErrorAs(t, err, &e)
				require.EqualError(t, err, row.err)
			}
		})
	}
	key, err := keyFrom(http.Header{"X-Request-Id": {"k"}}, "x-request-id")
	require.NoError(t, err)
	require.Equal(t, "k", key, "any name, in any case")
}

package pgstore

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHeader(t *testing.T) {
	for _, row := range []struct {
		name string
		h    http.Header
		text string
	}{
		{"no fields", http.Header{}, `{}`},
		{"readable in the database", http.Header{"Content-Type": {"text/plain"}, "Vary": {"A", "B"}}, `{"Content-Type":["text/plain"],"Vary":["A","B"]}`},
		{"no values", http.Header{"A": nil, "B": {}, "C": {""}}, `{"A":null,"B":[],"C":[""]}`},
		{"bytes that are not UTF-8", http.Header{"X": {"\xff\xc3\x28"}, "Y": nil}, `{"X":["ÿÃ("],"Y":null}`},
		{"UTF-8", http.Header{"X": {"é"}}, `{"X":["Ã©"]}`},
		{"control characters", http.Header{"X": {"\x00\n"}}, `{"X":["\u0000\n"]}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, err := encodeHeader(row.h)
			require.NoError(t, err)
			require.NotNil(t, text)
			assert.Equal(t, row.text, *text)
			h, err := decodeHeader(*text)
			require.NoError(t, err)
			assert.Equal(t, row.h, h)
		})
	}
	text, err := encodeHeader(nil)
	require.NoError(t, err)
	assert.Nil(t, text)
	_, err = decodeHeader(`{"X":`)
	assert.Error(t, err)
}

// FuzzHeader: decoding returns the header, and the text is UTF-8 without NUL, so that
// PostgreSQL can store it.
func FuzzHeader(f *testing.F) {
	f.Add("Content-Type", "application/json", "")
	f.Add("X", "\xff\x00é", "\u2028<&>")
	f.Fuzz(func(t *testing.T, name, first, second string) {
		h := http.Header{name: {first, second}, "nil": nil}
		text, err := encodeHeader(h)
		require.NoError(t, err)
		require.True(t, storable(*text))
		got, err := decodeHeader(*text)
		require.NoError(t, err)
		require.Equal(t, h, got)
	})
}

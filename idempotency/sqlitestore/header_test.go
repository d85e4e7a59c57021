package sqlitestore

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHeader(t *testing.T) {
	for _, row := range []struct {
		name   string
		header http.Header
	}{
		{"nil", nil},
		{"empty", http.Header{}},
		{"usual", http.Header{"Content-Type": {"application/json"}, "Link": {"<a>", "<b>"}}},
		{"not UTF-8", http.Header{"X-Name": {"M\xfcller", "\xff\xfe\x00"}}},
		{"names as they are", http.Header{"x-lower": {"1"}, "X-Lower": {"2"}, "": {""}}},
		{"no values", http.Header{"Date": nil, "X-None": {}}},
		{"long", http.Header{"X-Long": {strings.Repeat("x", 100_000)}, "X-Many": make([]string, 1000)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := decodeHeader(encodeHeader(row.header))
			require.NoError(t, err)
			assert.Equal(t, row.header, got)
		})
	}
}

func TestDamagedHeader(t *testing.T) {
	whole := encodeHeader(http.Header{"A": {"1", "2"}, "B": nil})
	for i := range whole {
		_, err := decodeHeader(whole[:i])
		require.ErrorIs(t, err, errHeader, "the first %d bytes", i)
	}
	for name, b := range map[string][]byte{
		"another version": {2, 0},
		"too long":        append(bytes.Clone(whole), 0),
		"too many fields": {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"too many values": {1, 1, 1, 'A', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"too long a text": {1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"a field twice":   {1, 2, 1, 'A', 0, 1, 'A', 0},
		"endless number":  bytes.Repeat([]byte{0xff}, 20),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeHeader(b)
			require.ErrorIs(t, err, errHeader)
		})
	}
}

func FuzzDecodeHeader(f *testing.F) {
	f.Add(encodeHeader(http.Header{"A": {"1", "2"}, "B": nil, "C": {}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHeader(b)
		if err != nil {
			return
		}
		again, err := decodeHeader(encodeHeader(h))
		require.NoError(t, err)
		assert.Equal(t, h, again)
	})
}

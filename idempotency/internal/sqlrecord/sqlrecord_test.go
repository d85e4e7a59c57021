package sqlrecord_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/sqlrecord"
)

func TestHeader(t *testing.T) {
	for _, row := range []struct {
		name   string
		header http.Header
	}{
		{"nil", nil},
		{"empty", http.Header{}},
		{"ASCII", http.Header{"Content-Type": {"application/json"}, "Link": {"<a>", "<b>"}}},
		{"not UTF-8: bytes stay the same", http.Header{"X-Name": {"M\xfcller", "\xff\xfe\x00", "ü"}, "\x80": nil}},
		{"names: stay as they are", http.Header{"x-lower": {"1"}, "X-Lower": {"2"}, "": {""}}},
		{"no values: nil and empty stay different", http.Header{"Date": nil, "X-None": {}}},
		{"long", http.Header{"X-Long": {strings.Repeat("x", 100_000)}, "X-Many": make([]string, 1000)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, err := sqlrecord.EncodeHeader(row.header)
			require.NoError(t, err)
			got, err := sqlrecord.DecodeHeader(text)
			require.NoError(t, err)
			assert.Equal(t, row.header, got)
		})
	}
	for _, damaged := range []string{
		"", "x", "null", "[]", "{", "}", `{"A`, `{"A"}`, `{"A":`, `{"A":"1"}`, `{"A":["1"]`, `{"A":["1"}`, `{"A":["1",]}`, `{"A":["1"],}`, `{"A":["1"]}x`,
	} {
		_, err := sqlrecord.DecodeHeader([]byte(damaged))
		require.ErrorContains(t, err, "stored header", "%q", damaged)
	}
}

func FuzzDecodeHeader(f *testing.F) {
	for _, text := range []string{`{"A":["1","2"],"B":null,"C":[]}`, `{"M\u00fc":["\u00ff"]}`, "{", "null"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := sqlrecord.DecodeHeader(text)
		if err != nil {
			return
		}
		var want http.Header
		require.NoError(t, json.Unmarshal(text, &want))
		if !bytes.ContainsFunc(text, func(r rune) bool { return r >= 0x80 || r == '\\' }) {
			assert.Equal(t, want, h)
		}
		again, err := sqlrecord.EncodeHeader(h)
		require.NoError(t, err)
		decoded, err := sqlrecord.DecodeHeader(again)
		require.NoError(t, err)
		assert.Equal(t, h, decoded)
	})
}

func TestPages(t *testing.T) {
	failure := errors.New("no")
	all := []idempotency.ID{{Key: "1"}, {Scope: "a", Key: "1"}, {Scope: "a", Key: "2"}, {Scope: "a", Operation: "o", Key: "0"}, {Scope: "b", Key: "1"}}
	for _, row := range []struct {
		name, scope string
		fails       bool
		want, reads int
	}{
		{"all scopes: every record", "", false, 5, 3},
		{"one scope: its records", "a", false, 3, 2},
		{"unknown scope: none", "c", false, 0, 1},
		{"error: the list ends", "", true, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, reads := 0, 0
			for r, err := range sqlrecord.Pages(row.scope, 2, func(after idempotency.ID, limit int) (page []idempotency.Record, err error) {
				if reads++; row.fails {
					return nil, failure
				}
				for _, id := range all {
					later := id.Scope > after.Scope || id.Scope == after.Scope &&
						(id.Operation > after.Operation || id.Operation == after.Operation && id.Key > after.Key)
					if later && len(page) < limit {
						page = append(page, idempotency.Record{ID: id})
					}
				}
				return page, nil
			}) {
				if row.fails {
					require.ErrorIs(t, err, failure)
					continue
				}
				require.NoError(t, err)
				assert.True(t, row.scope == "" || r.Scope == row.scope)
				got++
			}
			assert.Equal(t, []int{row.want, row.reads}, []int{got, reads})
		})
	}
	for _, err := range sqlrecord.Pages("", 2, func(idempotency.ID, int) ([]idempotency.Record, error) { return make([]idempotency.Record, 2), nil }) {
		require.NoError(t, err)
		break // nothing is read after it
	}
}

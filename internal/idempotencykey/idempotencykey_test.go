package idempotencykey_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/idempotencykey"
)

func TestParse(t *testing.T) {
	longest := strings.Repeat("k", idempotencykey.MaxLength)
	for _, tt := range []struct{ name, field, want, err string }{
		{"bare", "comp1:invoice:001", "comp1:invoice:001", ""},
		{"quoted", `"comp1:invoice:001"`, "comp1:invoice:001", ""},
		{"blanks around a bare one", " \tk\t ", "k", ""},
		{"blanks around a quoted one", ` "k" `, "k", ""},
		{"blanks in a bare one", "a b", "a b", ""},
		{"blanks in a quoted one are part of it", `" k "`, " k ", ""},
		{"escapes", `"a\"b\\c"`, `a"b\c`, ""},
		{"backslashes in a bare one", `a\"b`, `a\"b`, ""},
		{"a parameter", `"k";a=1`, "k", ""},
		{"malformed parameters", `"k";;`, "k", ""},
		{"a semicolon in a bare one", "k;a=1", "k;a=1", ""},
		{"a comma in a bare one", "a, b", "a, b", ""},
		{"a list of strings", `"a", "b"`, `"a", "b"`, ""},
		{"an opening quote only", `"k`, `"k`, ""},
		{"quotes inside", `"a"b"`, `"a"b"`, ""},
		{"one character", "~", "~", ""},
		{"255", longest, longest, ""},
		{"255 in quotes", `"` + longest + `"`, longest, ""},
		{"255 that are all escaped", field.Quote(strings.Repeat(`"`, 255)), strings.Repeat(`"`, 255), ""},

		{"empty", "", "", "no visible character"},
		{"blanks", " \t ", "", "no visible character"},
		{"empty in quotes", `""`, "", "no visible character"},
		{"empty in quotes with a parameter", `"";a`, "", "no visible character"},
		{"blanks in quotes", `"  "`, "", "no visible character"},
		{"256", longest + "k", "", "has 256 characters, more than 255"},
		{"256 in quotes", `"k` + longest + `"`, "", "has 256 characters, more than 255"},
		{"a million", strings.Repeat("k", 1e6), "", "has 1000000 characters, more than 255"},
		{"NUL", "a\x00b", "", "not visible ASCII at position 1"},
		{"a line end", "a\nb", "", "not visible ASCII at position 1"},
		{"a tab inside", "a\tb", "", "not visible ASCII at position 1"},
		{"a delete", "a\x7f", "", "not visible ASCII at position 1"},
		{"not ASCII", "é", "", "not visible ASCII at position 0"},
		{"not UTF-8", "\xff", "", "not visible ASCII at position 0"},
		{"a control character in quotes", "\"a\x01\"", "", "not visible ASCII at position 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, err := idempotencykey.Parse(tt.field)
			require.Equal(t, tt.want, key)
			if tt.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.err)
		})
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name, key string
		ok        bool
	}{
		{"plain", "k", true},
		{"blanks inside", "a b", true},
		{"in quotes", `"k"`, true},
		{"blanks in quotes", `" k "`, true},
		{"255", strings.Repeat("k", 255), true},

		{"empty", "", false},
		{"a blank", " ", false},
		{"a blank first", " k", false},
		{"a blank last", "k ", false},
		{"empty in quotes", `""`, false},
		{"a blank in quotes", `" "`, false},
		{"256", strings.Repeat("k", 256), false},
		{"a line end", "k\r\nX: y", false},
		{"not ASCII", "ü", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.ok, idempotencykey.Check(tt.key) == nil)
		})
	}
}

// FuzzKey checks that Parse accepts each key that Check accepts, and that quoting a parsed
// key does not change it.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"", "k", " k", `"k"`, `"a"b"`, `"\"`, `"k";a=1`, "a, b", "\xff", strings.Repeat("k", 256)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if key, err := idempotencykey.Parse(s); err == nil {
			require.NotEmpty(t, strings.TrimSpace(key))
			require.LessOrEqual(t, len(key), idempotencykey.MaxLength)
			again, err := idempotencykey.Parse(field.Quote(key))
			require.NoError(t, err)
			require.Equal(t, key, again)
		} else {
			require.Empty(t, key)
			require.Less(t, len(err.Error()), 80, "no error repeats the key")
		}
		if idempotencykey.Check(s) == nil {
			key, err := idempotencykey.Parse(s)
			require.NoError(t, err)
			if s[0] != '"' {
				require.Equal(t, s, key)
			}
		}
	})
}

package field_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/field"
)

func TestString(t *testing.T) {
	for _, tt := range []struct {
		name, in, text, rest string
		ok                   bool
	}{
		{"plain", `"abc"`, "abc", "", true},
		{"empty", `""`, "", "", true},
		{"blanks are kept", `" a "`, " a ", "", true},
		{"escapes", `"\"a\\"`, `"a\`, "", true},
		{"an escape alone", `"\\"`, `\`, "", true},
		{"text around an escape", `"ab\"cd"`, `ab"cd`, "", true},
		{"text after it", `"a";b="c"`, "a", `;b="c"`, true},
		{"text after an escape", `"a\"",b`, `a"`, ",b", true},

		{"nothing", "", "", "", false},
		{"bare", "abc", "", "abc", false},
		{"a blank first", ` "a"`, "", ` "a"`, false},
		{"one quote", `"`, "", `"`, false},
		{"no end", `"abc`, "", `"abc`, false},
		{"an escaped end", `"abc\"`, "", `"abc\"`, false},
		{"a backslash last", `"abc\`, "", `"abc\`, false},
		{"an unknown escape", `"\n"`, "", `"\n"`, false},
		{"a control character", "\"a\tb\"", "", "\"a\tb\"", false},
		{"a delete", "\"a\x7f\"", "", "\"a\x7f\"", false},
		{"not ASCII", `"ü"`, "", `"ü"`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, rest, ok := field.String(tt.in)
			require.Equal(t, tt.ok, ok)
			require.Equal(t, tt.text, text)
			require.Equal(t, tt.rest, rest)
		})
	}
}

// FuzzString checks that String and Quote reverse each other.
func FuzzString(f *testing.F) {
	for _, s := range []string{"", `"a"`, `"\"\\"`, `"a";b`, `"\n"`, `a`, `\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if text, rest, ok := field.String(s); ok {
			require.Equal(t, s, field.Quote(text)+rest)
		}
		text, rest, ok := field.String(field.Quote(s) + "x")
		visible := !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
		require.Equal(t, visible, ok)
		if ok {
			require.Equal(t, s, text)
			require.Equal(t, "x", rest)
		}
	})
}

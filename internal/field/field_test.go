package field_test

import (
	"net/http"
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

// FuzzParsePriority checks that ParsePriority returns one of the three priorities, and that FormatPriority reverses it.
func FuzzParsePriority(f *testing.F) {
	for _, s := range []string{
		"", "batch", "critical", " CRITICAL ", " Batch\t", "default", "urgent", "9", "batch,critical", "critical, critical", `"critical"`,
		"crіtical", "\x00batch",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := field.ParsePriority(s)
		require.Contains(t, []int8{field.Batch, field.Default, field.Critical}, p)
		require.Equal(t, p, field.ParsePriority(field.FormatPriority(p)))
		if p != field.Default {
			require.True(t, strings.EqualFold(strings.TrimSpace(s), field.FormatPriority(p)))
		}
	})
}

func TestStrongTag(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		give []string
		want string
	}{
		{"none", nil, ""},
		{"strong", []string{`"a"`}, `"a"`},
		{"empty, but strong", []string{`""`}, `""`},
		{"above ASCII", []string{`"ü"`}, `"ü"`},
		{"weak", []string{`W/"a"`}, ""},
		{"weak in lower case", []string{`w/"a"`}, ""},
		{"without quotes", []string{`a`}, ""},
		{"one quote", []string{`"`}, ""},
		{"two tags", []string{`"a"`, `"a"`}, ""},
		{"two tags in one field", []string{`"a", "b"`}, ""},
		{"a quote inside", []string{`"a""b"`}, ""},
		{"a line end", []string{"\"a\r\nx: y\""}, ""},
		{"DEL", []string{"\"\x7f\""}, ""},
		{"any", []string{`*`}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, field.StrongTag(http.Header{"Etag": row.give}))
		})
	}
}

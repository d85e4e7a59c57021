package field

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

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
			require.Equal(t, row.want, StrongTag(http.Header{"Etag": row.give}))
		})
	}
}

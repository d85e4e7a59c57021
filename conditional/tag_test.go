package conditional

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// U1: If-Match has one strong entity tag or is not sent, for any ETag of a server.
func FuzzCondition(f *testing.F) {
	for _, tag := range []string{`"a"`, `W/"a"`, `w/"a"`, `a`, `"`, `""`, `"a" "b"`, `"a", "b"`, `"a""b"`, "\"a\r\nx: y\"", `*`, ` "a"`, "\"\x7f\"", `"ü"`} {
		f.Add(tag, "Fri, 31 Dec 1999 23:59:59 GMT", "Sat, 01 Jan 2000 00:00:00 GMT")
	}
	f.Fuzz(func(t *testing.T, tag, modified, date string) {
		h := http.Header{"Etag": {tag}, "Last-Modified": {modified}, "Date": {date}}
		c := conditionOf(h, false)
		if c.name == "" {
			return
		}
		assert.Equal(t, "If-Match", c.name)
		assert.Regexp(t, `^"[!#-~\x80-\xff]*"$`, latin1(c.value))
		assert.NotEqual(t, "If-Match", conditionOf(http.Header{"Etag": {"W/" + tag}}, true).name)
	})
}

// latin1 decodes bytes as ISO 8859-1, as HTTP does.
func latin1(s string) string {
	r := make([]rune, len(s))
	for i := range len(s) {
		r[i] = rune(s[i])
	}
	return string(r)
}

package hostmatch

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		pattern, url string
		want         bool
	}{
		{"api.test", "https://api.test/x", true},
		{"api.test", "https://API.test:8443/x", true},
		{"api.test:8443", "https://api.test:8443/x", true},
		{"api.test:8443", "https://api.test/x", false},
		{"api.test", "https://evil.api.test/", false},
		{"api.test", "https://api.test.evil/", false},
		{"api.test", "https://api.test@evil/", false},
		{"*.api.test", "https://a.b.api.test/", true},
		{"*.api.test", "https://a.api.test:8443/", true},
		{"*.api.test:8443", "https://a.api.test:8443/", true},
		{"*.api.test", "https://api.test/", false},
		{"*.api.test", "https://.api.test/", false},
		{"*.api.test", "https://evilapi.test/", false},
		{"::1", "http://[::1]:80/", true},
		{"", "http:///x", true}, // Check rejects this pattern
	} {
		u, err := url.Parse(row.url)
		require.NoError(t, err)
		assert.Equal(t, row.want, Match([]string{"other.test", row.pattern}, u), "%s for %s", row.pattern, row.url)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"api.test", "api.test:8443", "*.api.test", "127.0.0.1:1", "[::1]:8080", "localhost"} {
		require.NoError(t, Check(good), good)
	}
	for _, bad := range []string{"", "*.", "*", "https://api.test", "api.test/v1", "API.test", "a.*.test", "user@api.test", "api test"} {
		assert.Error(t, Check(bad), bad)
	}
}

func TestSameOrigin(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{"https://api.test/a", "https://API.test/b?c", true},
		{"https://api.test", "https://api.test:443", true},
		{"HTTP://api.test:80", "http://api.test", true},
		{"http://[::1]:80", "http://[::1]", true},
		{"https://api.test", "http://api.test", false},
		{"https://api.test", "https://api.test:8443", false},
		{"https://api.test", "https://api.test.evil", false},
		{"ftp://api.test:1", "ftp://api.test", false},
	} {
		a, err := url.Parse(row.a)
		require.NoError(t, err)
		b, err := url.Parse(row.b)
		require.NoError(t, err)
		assert.Equal(t, row.want, SameOrigin(a, b), "%s, %s", row.a, row.b)
		assert.Equal(t, row.want, SameOrigin(b, a), "%s, %s", row.b, row.a)
	}
}

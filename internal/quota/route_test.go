package quota

import (
	"fmt"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"strings"

	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Segments that look like an ID are replaced in a route.
func TestRouteKeys(t *testing.T) {
	for segment, id := range map[string]bool{
		"": false, "repos": false, "v10": false, "oauth2": false, "2": true, "123456789012345678": true, "@me": false,
		"deadbeef": false, "deadbeef01": true, "3f2504e0-4f89-11d3-9a0c-0305e82c3301": true, "01ARZ3NDEKTSV4RRFFQ69G5FAV": true,
		"code-scanning": false, "a-very-long-segment-without-any": false,
	} {
		assert.Equal(t, id, looksLikeID(segment), segment)
	}
	l := with(Config{})
	keys := func(method, path string) routeKeys { return l.routeKeys("api.example.com", method, path) }
	one, two := keys("GET", "/api/v10/channels/123/messages"), keys("GET", "/api/v10/channels/456/messages")
	assert.Equal(t, one.keys, two.keys)
	assert.NotEqual(t, one.id, two.id)
	assert.NotEqual(t, one.keys[0], keys("POST", "/api/v10/channels/123/messages").keys[0])
	pins := keys("POST", "/api/v10/channels/123/pins")
	assert.Equal(t, one.keys[1:], pins.keys[1:], "its beginnings are theirs")
	assert.Equal(t, 4, one.n)
	assert.Equal(t, 1, keys("GET", "/").n)
	assert.Equal(t, 1, keys("GET", "").n)
	assert.Equal(t, 2, keys("GET", "/a/b").n)
}

// A bucket with a name is known for the routes that it was seen for, and for paths with the same
// beginning.
func TestNamedBuckets(t *testing.T) {
	said := func(l faulttest.RateLimit) faulttest.Reply {
		l.Reset = 30 * time.Second
		return faulttest.Reply{RateLimits: []faulttest.RateLimit{l}}
	}
	github := faulttest.Script{
		{Route: "/search/", Handler: said(faulttest.RateLimit{Dialect: faulttest.GitHub, Limit: 60, Remaining: 10, Name: "search"})},
		{
			Route:   "/repos/golang/go/code-scanning/sarifs",
			Handler: said(faulttest.RateLimit{Dialect: faulttest.GitHub, Limit: 60, Remaining: 10, Name: "code_scanning_upload"}),
		},
		{Handler: said(faulttest.RateLimit{Dialect: faulttest.GitHub, Limit: 1, Name: "core"})},
	}
	discord := said(faulttest.RateLimit{Dialect: faulttest.Discord, Limit: 1, Name: "messages"})
	for _, row := range []struct {
		name   string
		server http.Handler
		seen   []string // the last two of them just now
		path   string
		waits  bool
	}{
		{"same route", github, []string{"/repos/golang/go/issues"}, "/repos/golang/go/issues", true},
		{"unknown path beside it", github, []string{"/repos/golang/go/issues"}, "/repos/torvalds/linux/pulls", true},
		{"unknown path of another kind", github, []string{"/repos/golang/go/issues"}, "/gists", false},
		{"route of another bucket", github, []string{"/search/code", "/repos/golang/go/issues"}, "/search/code", false},
		{"path beside that", github, []string{"/search/code", "/repos/golang/go/issues"}, "/search/users", false},
		{"the exception", github, []string{"/repos/golang/go/code-scanning/sarifs", "/repos/a/b/issues"}, "/repos/golang/go/code-scanning/sarifs", false},
		{"same channel, other message", discord, []string{"/api/v10/channels/123/messages/9"}, "/api/v10/channels/123/messages/10", true},
		{"other channel", discord, []string{"/api/v10/channels/123/messages/9"}, "/api/v10/channels/124/messages/9", false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			in2026(0)
			s := newQuotaScript(t, with(Config{}), row.server)
			for _, path := range row.seen {
				_, err := get(t.Context(), s.client, s.URL+path)
				require.Nil(t, err)
				time.Sleep(31 * time.Second)
			}
			for _, path := range row.seen[max(len(row.seen)-2, 0):] {
				took, err := s.get(t, path)
				require.Nil(t, err)
				require.Zero(t, took, path)
			}
			took, err := s.get(t, row.path)
			require.Nil(t, err)
			assert.Equal(t, row.waits, took > 25*time.Second, "%v", took)
		})
	}
}

// A server of the IETF draft shows a quota for each resource and one for the user, each with a partition
// key. An exhausted resource stops no other, whatever their order is.
func TestRoutes_partitionKeys(t *testing.T) {
	for name, form := range map[string]string{"user last": "%[1]s, %[2]s", "user first": "%[2]s, %[1]s"} {
		bubble.Run(t, name, func(t *testing.T) {
			left := map[string]int{"reports": 3, "orders": 1000}
			base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				time.Sleep(20 * time.Millisecond)
				resource := strings.TrimPrefix(req.URL.Path, "/")
				status, header := http.StatusOK, http.Header{}
				if left[resource] == 0 {
					status = http.StatusTooManyRequests
					header.Set("Retry-After", "3000")
				} else {
					left[resource]--
				}
				of := fmt.Sprintf(`"resource";r=%d;t=3000;pk=:%s:`, left[resource], resource)
				header["Ratelimit"] = []string{fmt.Sprintf(form, of, `"user";r=90000;t=3000;pk=:user1:`)}
				return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: req}, nil
			})
			c := client(base, with(Config{}))
			served := 0
			for range 20 {
				if status, _ := get(t.Context(), c, "http://api.test/orders"); status == http.StatusOK {
					served++
				}
				_, _ = get(t.Context(), c, "http://api.test/reports")
			}
			require.Equal(t, 20, served)
		})
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

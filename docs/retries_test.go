package docs_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// docs/retries.md: the jar of the http.Client sees the response that the caller gets, and no other one.
func TestRetriesPage_cookies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		base := observed(func(req *http.Request) (*http.Response, error) {
			sent = append(sent, req.Header.Get("Cookie"))
			status := http.StatusServiceUnavailable
			if len(sent) == 2 {
				status = http.StatusOK
			}
			resp, err := (&statusOrError{status: status}).RoundTrip(req)
			resp.Header.Set("Set-Cookie", "attempt="+strings.Repeat("i", len(sent)))
			return resp, err
		})
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		api := &url.URL{Scheme: "http", Host: "api.test", Path: "/"}
		jar.SetCookies(api, []*http.Cookie{{Name: "attempt", Value: "none"}})
		client := &http.Client{Jar: jar, Transport: &resilienthttp.Transport{Base: base}}
		resp, err := client.Get(api.String())
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []string{"attempt=none", "attempt=none"}, sent)
		require.Equal(t, "ii", jar.Cookies(api)[0].Value)
	})
}

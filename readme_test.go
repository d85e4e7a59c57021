package resilienthttp_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

func TestCharge(t *testing.T) {
	for name, script := range map[string]func(charges http.Handler) http.Handler{
		"busy": func(ok http.Handler) http.Handler {
			return faulttest.Sequence(faulttest.Unavailable(time.Minute, faulttest.HTTPDate), ok)
		},
		"is lost": func(ok http.Handler) http.Handler { return faulttest.Sequence(faulttest.LoseResponse(ok), ok) },
		"quota": func(ok http.Handler) http.Handler {
			return faulttest.Sequence(faulttest.Throttled(faulttest.GitHub, time.Minute), ok)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a minute's wait in a millisecond
				charges := new(faulttest.Idempotent)
				srv := faulttest.NewInMemory(t, script(charges)) // faulttest.New: a real socket
				client := &http.Client{Transport: &resilienthttp.Transport{Base: srv.Transport()}}
				resp, err := client.Post(srv.URL+"/charges", "application/json", strings.NewReader(`{"amount":100}`))
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				srv.AssertAttempts(t, 2)
				srv.AssertKeys(t, 1)
				charges.AssertExactlyOnce(t, 1)
			})
		})
	}
}

// TestReadme checks that the test above is in README.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	this, err := os.ReadFile("readme_test.go")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(this), "func TestCharge")
	example, _, found := strings.Cut(example, "\n}\n")
	require.True(t, found)
	require.True(t, strings.Contains(string(readme), "\nfunc TestCharge"+example+"\n}\n```\n"), "README.md has another text") //nolint:testifylint // which would print all of it
}

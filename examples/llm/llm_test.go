package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/internal/doctable"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// S3, S5: the program in virtual time prints the table of docs/streams.md.
func TestRun(t *testing.T) {
	met := map[fault]bool{}
	for n := range turns {
		met[faultOf(n+1)] = true
	}
	require.Len(t, met, int(faults), "each fault, and none")
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		require.NoError(t, run(&out, func(handler http.Handler) (*url.URL, http.RoundTripper, error) {
			server := memhttp.NewServer(t, handler)
			base, err := url.Parse(server.URL)
			return base, server.Transport(), err
		}))
		doctable.Example(t, "../../docs/streams.md", "llm", out.String())
	})
}

// The base may have a path or none.
func TestPool(t *testing.T) {
	for base, region := range map[string]string{
		"http://api.test":         "http://api.test/eu",
		"http://api.test/":        "http://api.test/eu",
		"http://api.test/gateway": "http://api.test/gateway/eu",
	} {
		u, err := url.Parse(base)
		require.NoError(t, err)
		pool := openAIChat.pool(u)
		require.Equal(t, region, pool[2].URL.String())
		require.NoError(t, (&endpoints.Transport{Transport: &resilienthttp.Transport{}, Endpoints: pool}).Validate(), base)
	}
}

package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

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
			base, err := url.Parse(server.URL + "/")
			return base, server.Transport(), err
		}))
		doctable.Example(t, "../../docs/streams.md", "llm", out.String())
	})
}

package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
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
		requireInWords(t, out.String())
	})
}

// requireInWords requires that docs/streams.md says in a sentence what the table shows, with the figures of the table.
func requireInWords(t *testing.T, table string) {
	t.Helper()
	rows := regexp.MustCompile(`(?m)^(\S+) +(\d+) of +\d+ +(\d+) `).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, 3)
	bare, ours := rows[0], rows[2]
	require.Equal(t, []string{"http.Client", "Transport"}, []string{bare[1], ours[1]})
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	page, err := os.ReadFile("../../docs/streams.md")
	require.NoError(t, err)
	want := fmt.Sprintf("So %d more turns succeed than with an `http.Client`, and %d turns are paid twice.", number(ours[2])-number(bare[2]), number(ours[3]))
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("docs/streams.md: got other figures than the table, want %q", want)
	}
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

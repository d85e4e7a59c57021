package download_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/download"
)

// B1: whatever a server cuts and says, the bytes are a prefix of the content; all of it without an
// error. Each byte of the script is one response: where it is cut, and how it lies.
func FuzzBytes(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x0a\x0b\x0c", "\x8a\x1a\x2a", "\x0a\x10", "\x0a\x20\x30\x40\x50\x60\x70", "\xff\xfe\xfd"} {
		f.Add([]byte(seed), uint8(3))
	}
	lies := []change{
		nil, nil, nil,
		header("Content-Range", "bytes 0-25/26"),
		header("Content-Range", "bytes 10-25/*"),
		header("ETag", `"v2"`),
		func(r *http.Response) { r.StatusCode = http.StatusOK },
		func(r *http.Response) { // a shorter part, as RFC 9110 permits
			if first, _, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Content-Range"), "bytes "), "-"); ok && r.StatusCode == http.StatusPartialContent {
				r.Header.Set("Content-Range", "bytes "+first+"-"+first+"/26")
				r.ContentLength = 1
				cut(1, io.EOF)(r)
			}
		},
	}
	f.Fuzz(func(t *testing.T, script []byte, size uint8) {
		synctest.Test(t, func(t *testing.T) {
			o := &origin{content: alphabet, tag: strong}
			for _, b := range script {
				lie, broken := lies[b>>5], cut(int64(b&31), errBroken)
				o.plan = append(o.plan, func(r *http.Response) {
					if broken(r); lie != nil {
						lie(r)
					}
				})
			}
			resp, err := (&download.Transport{Base: o}).RoundTrip(request(t, t.Context()))
			require.NoError(t, err)
			got, err := readBy(int(size)+1, resp.Body)
			require.NoError(t, resp.Body.Close())
			require.True(t, strings.HasPrefix(alphabet, string(got)), "%q", got)
			require.Equal(t, err == nil, string(got) == alphabet, "%v", err)
			require.Zero(t, o.open)
			require.LessOrEqual(t, len(o.requests), len(script)+1)
		})
	})
}

package download_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/download"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// pace is how a server sends the body of one response.
type pace struct {
	before time.Duration // until the headers
	bytes  int           // of a piece; 0: nothing is sent
	each   time.Duration // before each piece
	pieces int           // after which the connection breaks; 0: it does not
}

func (p pace) serve(w http.ResponseWriter, r *http.Request, content string) {
	from := 0
	text, part := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if part {
		from, _ = strconv.Atoi(strings.TrimSuffix(text, "-"))
	}
	time.Sleep(p.before)
	w.Header().Set("ETag", strong)
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Length", strconv.Itoa(len(content)-from))
	if part {
		w.Header().Set("Content-Range", "bytes "+strconv.Itoa(from)+"-"+strconv.Itoa(len(content)-1)+"/"+strconv.Itoa(len(content)))
		w.WriteHeader(http.StatusPartialContent)
	}
	for piece := 1; from < len(content); piece++ {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(p.each):
		case <-r.Context().Done():
			return
		}
		to := min(from+p.bytes, len(content))
		if _, err := io.WriteString(w, content[from:to]); err != nil {
			return
		}
		if from = to; piece == p.pieces {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// B3: a connection that brings fewer than MinProgress bytes in a minute of blocked Reads is given up, and the download ends
// if that goes on. A slow caller is not counted.
func TestMinProgress(t *testing.T) {
	const (
		second = time.Second
		minute = time.Minute
	)
	quick := pace{bytes: 1 << 20}
	drip := pace{bytes: 1, each: 59 * second}
	for _, row := range []struct {
		name     string
		size     int           // above 256 KiB where the download closes a part: below, net/http 1.27 drains it, and holds the clock of the bubble
		least    int64         // MinProgress
		max      int           // MaxResumes
		paces    []pace        // by request; the last one for later ones too
		caller   time.Duration // before each Read
		requests int
		took     time.Duration // at most, without the caller's time
		why      string        // "": the download is whole
	}{
		{"a byte each 59 s: given up ten times, then the end", 300_000, 0, 0, []pace{drip}, 0, 11, 11*minute + 20*second, "fewer bytes in 1m0s than MinProgress (resume: 10 brought too few bytes)"},
		{"a byte each 59 s, one resume", 300_000, 0, 1, []pace{drip}, 0, 2, 2 * minute, "1 brought too few bytes"},
		{"nothing: the same", 300_000, 0, 0, []pace{{each: time.Second}}, 0, 11, 11*minute + 20*second, "brought"},
		{"a byte each 59 s, then quick", 300_000, 0, 0, []pace{drip, quick}, 0, 2, 61 * second, ""},
		{"often slow, with enough between", 500_000, 0, 1, []pace{drip, {bytes: 60_000, pieces: 1}, drip, {bytes: 60_000, pieces: 1}, drip, quick}, 0, 6, 4 * minute, ""},
		{"a byte and a break, each time after 59 s", 300_000, 0, 0, []pace{{bytes: 1, each: 59 * second, pieces: 1}}, 0, 22, 12 * minute, "10 brought too few bytes"},
		{"headers after 5 min, a byte, a break", 300_000, 0, 0, []pace{{before: 5 * minute, bytes: 1, pieces: 1}}, 0, 12, 61 * minute, "10 brought too few bytes"},
		{"just enough: whole", 600_000, 0, 0, []pace{{bytes: 60_000, each: 59 * second}}, 0, 1, 10 * minute, ""},
		{"too few at the end: they are the rest", 60_020, 0, 0, []pace{{bytes: 60_010, each: 50 * second}}, 0, 1, 2 * minute, ""},
		{"a slow caller: whole", 600_000, 0, 0, []pace{quick}, time.Hour, 1, 0, ""},
		{"less is enough", 20, 1, 0, []pace{drip}, 0, 1, 20 * minute, ""},
		{"more is needed", 300_000, 150_000, 0, []pace{{bytes: 60_000, each: 45 * second}, quick}, 0, 2, minute, ""},
		{"no minimum", 20, -1, 0, []pace{{bytes: 1, each: time.Hour}}, 0, 1, 20 * time.Hour, ""},
	} {
		for _, h2 := range []bool{false, true} {
			bubble.Run(t, row.name+", HTTP/2 "+strconv.FormatBool(h2), func(t *testing.T) {
				content := strings.Repeat(alphabet, row.size/len(alphabet)+1)[:row.size]
				requests := 0
				var options []memhttp.Option
				if h2 {
					options = append(options, memhttp.HTTP2())
				}
				server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests++
					row.paces[min(requests, len(row.paces))-1].serve(w, r, content)
				}), options...)
				base := &resilienthttp.Transport{Base: server.Transport(), Policy: resilienthttp.Policy{AttemptTimeout: time.Hour}}
				transport := &download.Transport{Base: base, MinProgress: row.least, MaxResumes: row.max}
				began := time.Now()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/a", http.NoBody)
				require.NoError(t, err)
				resp, err := transport.RoundTrip(req)
				require.NoError(t, err)
				got, err := io.ReadAll(slowly{resp.Body, row.caller})
				require.NoError(t, resp.Body.Close())
				if row.caller == 0 {
					require.LessOrEqual(t, time.Since(began), row.took)
				}
				require.Equal(t, row.requests, requests)
				if row.why != "" {
					require.ErrorContains(t, err, row.why)
					require.True(t, strings.HasPrefix(content, string(got)))
					return
				}
				require.NoError(t, err)
				require.Equal(t, content, string(got))
			})
		}
	}
}

// slowly is a caller that takes its time before each Read.
type slowly struct {
	io.Reader

	wait time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(s.wait)
	return s.Reader.Read(p)
}

// A panic of a body's Close stays out of the timer's goroutine, where the program could not recover.
func TestMinProgress_closePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		o := &origin{content: alphabet, tag: strong, plan: []change{func(r *http.Response) { r.Body = panicking{blocked{r.Request.Context()}} }}}
		resp, err := (&download.Transport{Base: o}).RoundTrip(request(t, ctx))
		require.NoError(t, err)
		require.PanicsWithValue(t, "close", func() { _, _ = io.ReadAll(resp.Body) })
		require.Error(t, ctx.Err())
	})
}

// panicking is a body of a program: its Close panics.
type panicking struct{ io.Reader }

func (panicking) Close() error { panic("close") }

package conditional

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// TestUpdate checks U1–U4: the content of the resource after an update with concurrent writers
// and lost responses.
func TestUpdate(t *testing.T) {
	t.Parallel()
	others := func(n ...string) func(int) string {
		return func(put int) string {
			if put <= len(n) {
				return n[put-1]
			}
			return ""
		}
	}
	always := func(int) string { return "theirs" }
	for _, row := range []*struct {
		name     string
		server   resource
		serve    func(*resource) http.Handler // nil: without faults
		refused  bool                         // the first attempt of the first write is not sent
		updater  Updater
		err      error
		status   int
		content  string
		writes   int
		modifies int
	}{
		{name: "no other writer: one write", server: resource{content: "a"}, status: 200, content: "a,mine", writes: 1, modifies: 1},
		{name: "one conflict: second write", server: resource{content: "a", beforeWrite: others("b")}, status: 200, content: "b,mine", writes: 1, modifies: 2},
		{name: "U4: four conflicts: fifth write", server: resource{content: "a", beforeWrite: others("b", "c", "d", "e")}, status: 200, content: "e,mine", writes: 1, modifies: 5},
		{name: "U4: five conflicts: 412", server: resource{content: "a", beforeWrite: always}, status: 412, content: "theirs", modifies: 5},
		{name: "three conflicts with MaxAttempts 3: 412", server: resource{content: "a", beforeWrite: always}, updater: Updater{MaxAttempts: 3}, status: 412, content: "theirs", modifies: 3},

		{name: "U1: weak ETag: ErrNoETag", server: resource{content: "a", weak: true}, err: ErrNoETag, content: "a"},
		{name: "U1: no ETag: ErrNoETag", server: resource{content: "a", untagged: true}, err: ErrNoETag, content: "a"},
		{name: "U1: date without LastModified: ErrNoETag", server: resource{content: "a", dated: true}, err: ErrNoETag, content: "a"},
		{name: "U1: date with LastModified: one write", server: resource{content: "a", dated: true}, updater: Updater{LastModified: true}, status: 200, content: "a,mine", writes: 1, modifies: 1},
		{name: "U1: date and one conflict: second write", server: resource{content: "a", dated: true, beforeWrite: others("b")}, updater: Updater{LastModified: true}, status: 200, content: "b,mine", writes: 1, modifies: 2},

		{name: "U2: lost response: ErrUnknown, because another writer may have written the same", server: resource{content: "a"}, serve: lost, err: ErrUnknown, content: "a,mine", writes: 1, modifies: 1},
		{name: "U2: lost before the write, and another writer writes the same: ErrUnknown", server: resource{content: "a", beforeWrite: others("a,mine")}, serve: unread, err: ErrUnknown, content: "a,mine", modifies: 1},
		{name: "U2: lost response, a token: success", server: resource{content: "a"}, serve: lost, updater: Updater{Equal: bytes.Equal}, status: 200, content: "a,mine", writes: 1, modifies: 1},
		{name: "U2: lost response, Repeatable: second write", server: resource{content: "a"}, serve: lost, updater: Updater{Repeatable: true}, status: 200, content: "a,mine,mine", writes: 2, modifies: 2},
		{name: "U2: 500 after the write, a token: success", server: resource{content: "a"}, serve: lostBy500, updater: Updater{Equal: bytes.Equal}, status: 200, content: "a,mine", writes: 1, modifies: 1},
		{name: "U2: lost before the write: success", server: resource{content: "a"}, serve: unread, status: 200, content: "a,mine", writes: 1, modifies: 1},
		{name: "U2: lost response, then another write: ErrUnknown", server: resource{content: "a", beforeWrite: others("", "b")}, serve: lost, err: ErrUnknown, content: "b", writes: 1, modifies: 1},
		{name: "U2: lost before the write, then another write: ErrUnknown", server: resource{content: "a", beforeWrite: others("b")}, serve: unread, err: ErrUnknown, content: "b", modifies: 1},
		{name: "U2: lost before the write, then another write, Repeatable: second write", server: resource{content: "a", beforeWrite: others("b")}, serve: unread, updater: Updater{Repeatable: true}, status: 200, content: "b,mine", writes: 1, modifies: 2},
		{name: "U2: connection refused, so not lost, then another write: second write", server: resource{content: "a", beforeWrite: others("b")}, refused: true, status: 200, content: "b,mine", writes: 1, modifies: 2},
		{name: "U2: 429, then another write: second write", server: resource{content: "a", beforeWrite: others("b")}, serve: throttled, status: 200, content: "b,mine", writes: 1, modifies: 2},
		{name: "U2: lost in the last cycle, a token: success", server: resource{content: "a"}, serve: lost, updater: Updater{MaxAttempts: 1, Equal: bytes.Equal}, status: 200, content: "a,mine", writes: 1, modifies: 1},
		{name: "U2: lost in the last cycle, then another write: ErrUnknown", server: resource{content: "a", beforeWrite: others("", "b")}, serve: lost, updater: Updater{MaxAttempts: 1, Repeatable: true}, err: ErrUnknown, content: "b", writes: 1, modifies: 1},
		{name: "U2: lost response, server reformats, other bytes: ErrUnknown", server: resource{content: "a", reformat: strings.ToUpper}, serve: lost, updater: Updater{Equal: bytes.Equal}, err: ErrUnknown, content: "A,MINE", writes: 1, modifies: 1},
		{name: "U2: lost response, server reformats, Equal: success", server: resource{content: "a", reformat: strings.ToUpper}, serve: lost, updater: Updater{Equal: bytes.EqualFold}, status: 200, content: "A,MINE", writes: 1, modifies: 1},
		{name: "U2: equal content of another writer, no lost response: second write", server: resource{content: "a", beforeWrite: others("a,mine")}, status: 200, content: "a,mine,mine", writes: 1, modifies: 2},
		{name: "U2: lost response, read fails: ErrUnknown", server: resource{content: "a"}, serve: lostAndForbidden, err: ErrUnknown, content: "a,mine", writes: 1, modifies: 1},

		{name: "U3: no resource: created", status: 200, content: "mine", writes: 1, modifies: 1},
		{name: "U3: another writer creates it: second write", server: resource{beforeWrite: others("b")}, status: 200, content: "b,mine", writes: 1, modifies: 2},
		{name: "U3: created, lost response: ErrUnknown", serve: lost, err: ErrUnknown, content: "mine", writes: 1, modifies: 1},
		{name: "U3: created, lost response, a token: success", serve: lost, updater: Updater{Equal: bytes.Equal}, status: 200, content: "mine", writes: 1, modifies: 1},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			server := &row.server
			var h http.Handler = server
			if row.serve != nil {
				h = row.serve(server)
			}
			api := faulttest.NewInMemory(t, h)
			base := &connectionRefusedOnce{RoundTripper: api.Transport(), refused: !row.refused}
			updater := row.updater
			updater.Client = &http.Client{Transport: &resilienthttp.Transport{Base: base}}
			modifies := 0
			resp, err := updater.Update(t.Context(), api.URL, add(&modifies))
			if row.err != nil {
				require.ErrorIs(t, err, row.err, api.Transcript())
				assert.Nil(t, resp)
			} else {
				require.NoError(t, err, api.Transcript())
				assert.Equal(t, row.status, resp.StatusCode)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
			assert.Equal(t, row.content, server.content)
			assert.Equal(t, row.writes, server.writes)
			assert.Equal(t, row.modifies, modifies)
			assert.True(t, base.refused)
		})
	}
}

// lost executes the first write and loses its response.
func lost(r *resource) http.Handler { return once(faulttest.LoseResponse(r), r) }

func lostBy500(r *resource) http.Handler { return once(faulttest.Reply{Handler: r, Status: 500}, r) }

// unread reads the first write, does not execute it, and resets the connection.
func unread(r *resource) http.Handler { return once(faulttest.ResetAfterRead, r) }

func throttled(r *resource) http.Handler {
	return once(faulttest.Reply{Status: 429, RetryAfter: time.Second}, r)
}

func lostAndForbidden(r *resource) http.Handler {
	reads := faulttest.Sequence(r, faulttest.Status(http.StatusForbidden))
	writes := lost(r)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			reads.ServeHTTP(w, req)
			return
		}
		writes.ServeHTTP(w, req)
	})
}

// U2: net/http sends a write with a key again on its own, after its reused connection broke. So the 412 of the one attempt may be
// about its own write.
func TestUpdate_sentAgainByNetHTTP(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		client func(base http.RoundTripper) http.RoundTripper
	}{
		{"a Transport with keys", func(base http.RoundTripper) http.RoundTripper {
			return &resilienthttp.Transport{Base: base, Idempotency: resilienthttp.Idempotency{Methods: []string{http.MethodPut}}}
		}},
		{"net/http, a key in Header", func(base http.RoundTripper) http.RoundTripper { return base }},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			server := &resource{content: "a"}
			api := faulttest.NewInMemory(t, once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				server.ServeHTTP(httptest.NewRecorder(), r)
				conn, _, err := http.NewResponseController(w).Hijack()
				if assert.NoError(t, err) {
					assert.NoError(t, conn.Close())
				}
			}), server))
			modifies := 0
			u := Updater{Client: &http.Client{Transport: row.client(api.Transport())}, Equal: bytes.Equal}
			if strings.Contains(row.name, "Header") {
				u.Header = http.Header{"Idempotency-Key": {"one"}}
			}
			resp, err := u.Update(t.Context(), api.URL, add(&modifies))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, "a,mine", server.content)
			assert.Equal(t, 1, modifies)
		})
	}
}

// U2: an update that begins again after a lost write reports that write, whatever then ends it.
func TestUpdate_failsAfterLostWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &resource{content: "a", beforeWrite: func(put int) string { return []string{"", "b", ""}[put-1] }}
		api := faulttest.NewInMemory(t, lost(server))
		stop, modifies := errors.New("stop"), 0
		u := Updater{Client: &http.Client{Transport: &resilienthttp.Transport{Base: api.Transport()}}, Repeatable: true}
		_, err := u.Update(t.Context(), api.URL, func(current []byte, h http.Header) ([]byte, error) {
			if modifies == 1 {
				return nil, stop
			}
			return add(&modifies)(current, h)
		})
		require.ErrorIs(t, err, stop)
		require.ErrorIs(t, err, ErrUnknown)
	})
}

// connectionRefusedOnce fails the first PUT with connection refused.
type connectionRefusedOnce struct {
	http.RoundTripper

	refused bool
}

func (r *connectionRefusedOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPut || r.refused {
		return r.RoundTripper.RoundTrip(req)
	}
	r.refused = true
	_ = req.Body.Close()
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// Errors and responses that are no conflicts are returned.
func TestUpdate_returnsOtherResponses(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	tagged := func(more http.Header) faulttest.Reply {
		h := http.Header{"Etag": {`"1"`}}
		maps.Copy(h, more)
		return faulttest.Reply{Header: h, Body: "content"}
	}
	partial := func(status int) faulttest.Reply {
		r := tagged(nil)
		r.Status = status
		return r
	}
	for _, row := range []struct {
		name     string
		serve    http.Handler
		updater  Updater
		modify   Modify
		err      error
		status   int
		requests int
	}{
		{name: "read gets 401: returned", serve: faulttest.Status(401), status: 401, requests: 1},
		{name: "write gets 403: returned", serve: once(faulttest.Status(403), tagged(nil)), status: 403, requests: 2},
		{name: "modify fails: its error", serve: tagged(nil), modify: func([]byte, http.Header) ([]byte, error) { return nil, broken }, err: broken, requests: 1},
		{name: "compressed: ErrUnreadable", serve: tagged(http.Header{"Content-Encoding": {"zstd"}}), err: ErrUnreadable, requests: 1},
		{name: "a part: ErrUnreadable", serve: partial(206), err: ErrUnreadable, requests: 1},
		{name: "no content: ErrUnreadable", serve: partial(204), err: ErrUnreadable, requests: 1},
		{name: "of a cache that changes it: written", serve: partial(203), status: 203, requests: 2},
		{name: "longer than MaxBytes: ErrUnreadable", serve: tagged(nil), updater: Updater{MaxBytes: 6}, err: ErrUnreadable, requests: 1},
		{name: "as long as MaxBytes: success", serve: tagged(nil), updater: Updater{MaxBytes: 7}, status: 200, requests: 2},
		{name: "write redirected by 302: ErrRedirected", serve: once(faulttest.Redirect(302, "/other"), tagged(nil)), err: ErrRedirected, requests: 3},
		{name: "write redirected by 303: it may be done", serve: once(faulttest.Redirect(303, "/other"), tagged(nil)), err: ErrUnknown, requests: 3},
		{name: "write redirected by 307: success", serve: once(faulttest.Redirect(307, "/other"), tagged(nil)), status: 200, requests: 3},
		{name: "two ETag fields: ErrNoETag", serve: tagged(http.Header{"Etag": {`"1"`, `"2"`}}), err: ErrNoETag, requests: 1},
		{name: "ETag without quotes: ErrNoETag", serve: tagged(http.Header{"Etag": {`1`}}), err: ErrNoETag, requests: 1},
		{name: "quotes in an ETag: ErrNoETag", serve: tagged(http.Header{"Etag": {`"a""b"`}}), err: ErrNoETag, requests: 1},
		{name: "one quote: ErrNoETag", serve: tagged(http.Header{"Etag": {`"`}}), err: ErrNoETag, requests: 1},
		{name: "list of ETags: ErrNoETag", serve: tagged(http.Header{"Etag": {`"a", "b"`}}), err: ErrNoETag, requests: 1},
		{name: "date of this second: ErrNoETag", serve: faulttest.Reply{Header: http.Header{"Last-Modified": {"Sat, 01 Jan 2000 00:00:00 GMT"}}}, updater: Updater{LastModified: true}, err: ErrNoETag, requests: 1},
		{name: "invalid date: ErrNoETag", serve: faulttest.Reply{Header: http.Header{"Last-Modified": {"yesterday"}}}, updater: Updater{LastModified: true}, err: ErrNoETag, requests: 1},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			api := faulttest.NewInMemory(t, row.serve)
			updater := row.updater
			updater.Client = api.Client()
			modify := row.modify
			if modify == nil {
				modify = func(current []byte, _ http.Header) ([]byte, error) { return current, nil }
			}
			resp, err := updater.Update(t.Context(), api.URL+"/a", modify)
			if row.err != nil {
				require.ErrorIs(t, err, row.err)
			} else {
				require.NoError(t, err)
				assert.Equal(t, row.status, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
			}
			assert.Len(t, api.Requests(), row.requests, api.Transcript())
		})
	}
}

func TestUpdate_invalidArguments(t *testing.T) {
	t.Parallel()
	modify := add(new(int))
	_, err := Update(t.Context(), nil, "http://localhost", modify)
	require.EqualError(t, err, "conditional: Updater.Client is nil")
	_, err = Update(t.Context(), http.DefaultClient, "http://localhost", nil)
	require.EqualError(t, err, "conditional: modify is nil")
	_, err = (&Updater{Client: http.DefaultClient, MaxAttempts: -1}).Update(t.Context(), "http://localhost", modify)
	require.EqualError(t, err, "conditional: Updater.MaxAttempts is -1, must not be negative")
	_, err = (&Updater{Client: http.DefaultClient, MaxBytes: -1}).Update(t.Context(), "http://localhost", modify)
	require.EqualError(t, err, "conditional: Updater.MaxBytes is -1, must not be negative")
	_, err = Update(t.Context(), http.DefaultClient, "://", modify)
	require.Error(t, err)
}

func TestUpdate_requestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &resource{content: "a"}
		api := faulttest.NewInMemory(t, server)
		updater := Updater{Client: api.Client(), Header: http.Header{"accept": {"text/x-list"}}}
		update := func(modify Modify) {
			resp, err := updater.Update(t.Context(), api.URL, modify)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		update(add(new(int)))
		server.content = ""
		update(func(current []byte, h http.Header) ([]byte, error) {
			assert.Nil(t, current)
			assert.Empty(t, h.Get("Content-Type"), "the type of the error message is removed")
			h.Set("Content-Type", "text/y-list")
			return []byte("new"), nil
		})
		sent := api.Requests()
		require.Len(t, sent, 4)
		for _, i := range []int{0, 2} {
			assert.Equal(t, "identity", sent[i].Header.Get("Accept-Encoding"))
			assert.Equal(t, "no-cache", sent[i].Header.Get("Cache-Control"))
		}
		assert.Equal(t, "text/x-list", sent[1].Header.Get("Content-Type"))
		assert.Equal(t, "text/y-list", sent[3].Header.Get("Content-Type"))
		assert.Equal(t, `"0"`, sent[1].Header.Get("If-Match"))
		assert.Equal(t, "*", sent[3].Header.Get("If-None-Match"))
		for _, request := range sent {
			assert.Equal(t, "text/x-list", request.Header.Get("Accept"))
		}
	})
}

// If the read is redirected to another host, that host must not get a write with Header.
func TestUpdate_readRedirectedToOtherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := faulttest.NewInMemory(t, faulttest.Redirect(307, "http://elsewhere.test/"))
		elsewhere := &faulttest.Server{Script: &resource{content: "a"}, Network: api, Host: "elsewhere.test"}
		elsewhere.Start(t)
		_, err := Update(t.Context(), api.Client(), api.URL, add(new(int)))
		require.ErrorIs(t, err, ErrRedirected)
		assert.Len(t, elsewhere.Requests(), 1)
	})
}

// The wait between cycles ends at the deadline and on cancellation. A Retry-After is waited for
// once, by the Transport.
func TestUpdate_waits(t *testing.T) {
	t.Parallel()
	const never = time.Duration(0)
	steady := resilienthttp.Constant(10 * time.Second)
	for _, row := range []struct {
		name             string
		conflict         faulttest.Reply // to the writes
		backoff          resilienthttp.Backoff
		timeout, cancel  time.Duration
		err              error
		writes           int
		minimum, maximum time.Duration
	}{
		{"default backoff: five writes", faulttest.Reply{Status: 412}, nil, never, never, nil, 5, time.Nanosecond, 4 * time.Second},
		{"own backoff: five writes", faulttest.Reply{Status: 412}, steady, never, never, nil, 5, 40 * time.Second, 40 * time.Second},
		{"wait beyond the deadline: DeadlineExceeded", faulttest.Reply{Status: 412}, steady, 15 * time.Second, never, context.DeadlineExceeded, 2, 10 * time.Second, 10 * time.Second},
		{"canceled in a wait: Canceled", faulttest.Reply{Status: 412}, steady, never, 12 * time.Second, context.Canceled, 2, 12 * time.Second, 12 * time.Second},
		{"Retry-After of 1h: returned", faulttest.Reply{Status: 409, RetryAfter: time.Hour}, nil, never, never, nil, 1, 0, 0},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			r := &resource{content: "a"}
			writes := 0
			api := faulttest.NewInMemory(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodPut {
					writes++
					row.conflict.ServeHTTP(w, req)
					return
				}
				r.ServeHTTP(w, req)
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.timeout != never {
				ctx, cancel = context.WithTimeout(ctx, row.timeout)
				defer cancel()
			}
			if row.cancel != never {
				time.AfterFunc(row.cancel, cancel)
			}
			updater := Updater{Client: &http.Client{Transport: &resilienthttp.Transport{Base: api.Transport()}}, Backoff: row.backoff}
			start := time.Now()
			resp, err := updater.Update(ctx, api.URL, add(new(int)))
			took := time.Since(start)
			if row.err != nil {
				require.ErrorIs(t, err, row.err)
			} else {
				require.NoError(t, err)
				assert.Equal(t, row.conflict.Status, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
			}
			assert.Equal(t, row.writes, writes)
			assert.GreaterOrEqual(t, took, row.minimum)
			assert.LessOrEqual(t, took, row.maximum)
		})
	}
}

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

// resource is a handler with one resource and numbered versions.
type resource struct {
	mu      sync.Mutex
	content string // "": the resource does not exist
	version int
	writes  int

	weak, untagged bool
	dated          bool                // Last-Modified instead of a tag
	beforeWrite    func(n int) string  // what another writer stores before the nth PUT; "": nothing
	reformat       func(string) string // applied to stored content
	puts           int
}

func (r *resource) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Method == http.MethodGet {
		r.get(w)
		return
	}
	r.puts++
	if r.beforeWrite != nil {
		if other := r.beforeWrite(r.puts); other != "" {
			r.set(other)
		}
	}
	if !r.holds(req.Header) {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	r.writes++
	r.set(string(body))
	w.Header().Set("Etag", r.tag())
	_, _ = io.WriteString(w, "written")
}

func (r *resource) get(w http.ResponseWriter) {
	if r.content == "" {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	switch {
	case r.dated:
		w.Header().Set("Last-Modified", r.tag())
	case r.weak:
		w.Header().Set("Etag", "W/"+r.tag())
	case !r.untagged:
		w.Header().Set("Etag", r.tag())
	}
	w.Header().Set("Content-Type", "text/x-list")
	_, _ = io.WriteString(w, r.content)
}

func (r *resource) set(content string) {
	if r.reformat != nil {
		content = r.reformat(content)
	}
	r.content = content
	r.version++
}

func (r *resource) tag() string {
	if r.dated {
		return fmt.Sprintf("Fri, 31 Dec 1999 23:%02d:00 GMT", r.version)
	}
	return strconv.Quote(strconv.Itoa(r.version))
}

func (r *resource) holds(h http.Header) bool {
	switch {
	case h.Get("If-None-Match") == "*":
		return r.content == ""
	case h.Get("If-Match") != "":
		return r.content != "" && h.Get("If-Match") == r.tag()
	}
	return r.content != "" && h.Get("If-Unmodified-Since") == r.tag()
}

// once serves the first PUT with first, and all other requests with rest.
func once(first, rest http.Handler) http.Handler {
	puts := faulttest.Sequence(first, rest)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			puts.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// add returns a Modify that adds an item. The content shows if it was applied twice.
func add(calls *int) Modify {
	return func(current []byte, _ http.Header) ([]byte, error) {
		*calls++
		return []byte(strings.TrimPrefix(string(current)+",mine", ",")), nil
	}
}

// Many clients add to one list over a network that loses responses. The list has each client
// that got success exactly once, and no client twice.
func TestUpdate_manyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &resource{content: "start"}
		api := faulttest.NewInMemory(t, faulttest.Script{
			{Probability: 0.1, Handler: faulttest.LoseResponse(server)},
			{Probability: 0.1, Handler: faulttest.ResetAfterRead},
			{Probability: 0.1, Handler: faulttest.Status(503)},
			{Handler: server},
		})
		client := &http.Client{Transport: &resilienthttp.Transport{Base: api.Transport()}}
		type result struct {
			name string
			ok   bool
			err  error
		}
		results := make(chan result)
		const clients = 30
		for i := range clients {
			name := "c" + string(rune('A'+i)) + "c"
			go func() {
				updater := Updater{Client: client, MaxAttempts: 50}
				resp, err := updater.Update(t.Context(), api.URL, func(current []byte, _ http.Header) ([]byte, error) {
					return append(append(slices.Clip(current), ','), name...), nil
				})
				if err == nil {
					_ = resp.Body.Close()
				}
				results <- result{name, err == nil && isSuccess(resp), err}
			}()
		}
		succeeded, unknown := 0, 0
		var all []result
		for range clients {
			r := <-results
			all = append(all, r)
			switch {
			case r.ok:
				succeeded++
			case errors.Is(r.err, ErrUnknown):
				unknown++
			}
		}
		for _, r := range all {
			n := strings.Count(server.content, r.name)
			if r.ok {
				assert.Equal(t, 1, n, r.name)
			}
			assert.LessOrEqual(t, n, 1, r.name)
		}
		t.Logf("%d succeeded, %d unknown, %d failed", succeeded, unknown, clients-succeeded-unknown)
		assert.Positive(t, succeeded)
	})
}

// A RoundTripper need not set Response.Request, and http.Client does not set it either.
func TestUpdate_responseWithoutRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &resource{content: "a"}
		base := faulttest.NewInMemory(t, server)
		modifies := 0
		u := Updater{Client: &http.Client{Transport: withoutRequest{base.Transport()}}}
		resp, err := u.Update(t.Context(), base.URL, add(&modifies))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "a,mine", server.content)
	})
}

// §4.3: a Base may send another request than the client's, and Response.Request is then that one. The write goes to the URL that the
// client has asked for, without the signature of the read.
func TestUpdate_signedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &resource{content: "a"}
		base := faulttest.NewInMemory(t, server)
		var queries []string
		signer := roundTripper(func(req *http.Request) (*http.Response, error) {
			queries = append(queries, req.URL.RawQuery)
			signed := req.Clone(req.Context())
			signed.URL.RawQuery = "signature=" + req.Method
			resp, err := base.Transport().RoundTrip(signed)
			if err == nil {
				shown := signed.Clone(signed.Context())
				shown.Method, shown.URL.Host = http.MethodPost, "gateway.test" // as a recorder or a gateway shows it
				resp.Request = shown
			}
			return resp, err
		})
		modifies := 0
		u := Updater{Client: &http.Client{Transport: &resilienthttp.Transport{Base: signer}}}
		resp, err := u.Update(t.Context(), base.URL, add(&modifies))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "a,mine", server.content)
		require.Equal(t, []string{"", ""}, queries)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type withoutRequest struct{ http.RoundTripper }

func (w withoutRequest) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(req)
	if resp != nil {
		resp.Request = nil
	}
	return resp, err
}

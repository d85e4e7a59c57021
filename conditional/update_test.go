package conditional

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// TestUpdate is U1–U4: what an update does to a resource, whatever others and the
// network do meanwhile.
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
		name    string
		server  resource
		serve   func(*resource) http.Handler // nil: as it is
		updater Updater
		err     error
		status  int
		content string
		writes  int
		changes int
	}{
		{name: "nobody else", server: resource{content: "a"}, status: 200, content: "a,mine", writes: 1, changes: 1},
		{name: "somebody was quicker", server: resource{content: "a", beforeWrite: others("b")}, status: 200, content: "b,mine", writes: 1, changes: 2},
		{name: "U4: quicker four times", server: resource{content: "a", beforeWrite: others("b", "c", "d", "e")}, status: 200, content: "e,mine", writes: 1, changes: 5},
		{name: "U4: quicker each time", server: resource{content: "a", beforeWrite: always}, status: 412, content: "theirs", changes: 5},
		{name: "three rounds", server: resource{content: "a", beforeWrite: always}, updater: Updater{Rounds: 3}, status: 412, content: "theirs", changes: 3},

		{name: "U1: a weak tag", server: resource{content: "a", weak: true}, err: ErrNoETag, content: "a"},
		{name: "U1: no tag", server: resource{content: "a", untagged: true}, err: ErrNoETag, content: "a"},
		{name: "U1: a date, not asked for", server: resource{content: "a", dated: true}, err: ErrNoETag, content: "a"},
		{name: "U1: a date", server: resource{content: "a", dated: true}, updater: Updater{LastModified: true}, status: 200, content: "a,mine", writes: 1, changes: 1},
		{name: "U1: a date, somebody was quicker", server: resource{content: "a", dated: true, beforeWrite: others("b")}, updater: Updater{LastModified: true}, status: 200, content: "b,mine", writes: 1, changes: 2},

		{name: "U2: the answer is lost", server: resource{content: "a"}, serve: lost, status: 200, content: "a,mine", writes: 1, changes: 1},
		{name: "U2: the answer is lost, by a 500 after the work", server: resource{content: "a"}, serve: lostBy500, status: 200, content: "a,mine", writes: 1, changes: 1},
		{name: "U2: lost before the work", server: resource{content: "a"}, serve: unread, status: 200, content: "a,mine", writes: 1, changes: 1},
		{name: "U2: lost, and then somebody wrote", server: resource{content: "a", beforeWrite: others("", "b")}, serve: lost, err: ErrUnknown, content: "b", writes: 1, changes: 1},
		{name: "U2: lost before the work, and then somebody wrote", server: resource{content: "a", beforeWrite: others("b")}, serve: unread, err: ErrUnknown, content: "b", changes: 1},
		{name: "U2: the same, and repeatable", server: resource{content: "a", beforeWrite: others("b")}, serve: unread, updater: Updater{Repeatable: true}, status: 200, content: "b,mine", writes: 1, changes: 2},
		{name: "U2: refused by 429 first, then somebody wrote", server: resource{content: "a", beforeWrite: others("b")}, serve: throttled, status: 200, content: "b,mine", writes: 1, changes: 2},
		{name: "U2: lost in the last round", server: resource{content: "a"}, serve: lost, updater: Updater{Rounds: 1}, status: 200, content: "a,mine", writes: 1, changes: 1},
		{name: "U2: lost in the last round, and then somebody wrote", server: resource{content: "a", beforeWrite: others("", "b")}, serve: lost, updater: Updater{Rounds: 1, Repeatable: true}, err: ErrUnknown, content: "b", writes: 1, changes: 1},
		{name: "U2: the server lays it out anew", server: resource{content: "a", layOut: strings.ToUpper}, serve: lost, err: ErrUnknown, content: "A,MINE", writes: 1, changes: 1},
		{name: "U2: the same, and Same knows", server: resource{content: "a", layOut: strings.ToUpper}, serve: lost, updater: Updater{Same: bytes.EqualFold}, status: 200, content: "A,MINE", writes: 1, changes: 1},
		{name: "U2: somebody wrote the same, and nothing was lost", server: resource{content: "a", beforeWrite: others("a,mine")}, status: 200, content: "a,mine,mine", writes: 1, changes: 2},
		{name: "U2: lost, and it cannot be read again", server: resource{content: "a"}, serve: lostAndForbidden, err: ErrUnknown, content: "a,mine", writes: 1, changes: 1},

		{name: "U3: there is none", status: 200, content: "mine", writes: 1, changes: 1},
		{name: "U3: somebody creates it", server: resource{beforeWrite: others("b")}, status: 200, content: "b,mine", writes: 1, changes: 2},
		{name: "U3: created, and the answer is lost", serve: lost, status: 200, content: "mine", writes: 1, changes: 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &row.server
				var h http.Handler = server
				if row.serve != nil {
					h = row.serve(server)
				}
				api := faulttest.NewInMemory(t, h)
				updater := row.updater
				updater.Client = &http.Client{Transport: &resilienthttp.Transport{Base: api.Transport()}}
				changes := 0
				resp, err := updater.Update(t.Context(), api.URL, add(&changes))
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
				assert.Equal(t, row.changes, changes)
			})
		})
	}
}

// lost does the first write, and loses its answer.
func lost(r *resource) http.Handler { return once(faulttest.LoseResponse(r), r) }

func lostBy500(r *resource) http.Handler { return once(faulttest.Reply{Handler: r, Status: 500}, r) }

// unread loses the first write before it is done.
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

// TestUnsentIsNotLost (U2): a write that was refused a connection first was not done, so
// the 412 of the next attempt is somebody else's doing.
func TestUnsentIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &resource{content: "a", beforeWrite: func(put int) string { return []string{"b", ""}[put-1] }}
		api := faulttest.NewInMemory(t, server)
		base := refuseOnce{RoundTripper: api.Transport()}
		changes := 0
		resp, err := Update(t.Context(), &http.Client{Transport: &resilienthttp.Transport{Base: &base}}, api.URL, add(&changes))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.True(t, base.refused)
		assert.Equal(t, "b,mine", server.content)
		assert.Equal(t, 2, changes)
	})
}

// refuseOnce finds nobody listening for the first PUT.
type refuseOnce struct {
	http.RoundTripper

	refused bool
}

func (r *refuseOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPut || r.refused {
		return r.RoundTripper.RoundTrip(req)
	}
	r.refused = true
	_ = req.Body.Close()
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// TestUpdateReturns is what is not a conflict: it is the caller's.
func TestUpdateReturns(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	tagged := func(more http.Header) faulttest.Reply {
		h := http.Header{"Etag": {`"1"`}}
		maps.Copy(h, more)
		return faulttest.Reply{Header: h, Body: "content"}
	}
	for _, row := range []struct {
		name     string
		serve    http.Handler
		updater  Updater
		change   Change
		err      error
		status   int
		requests int
	}{
		{name: "a read that is refused", serve: faulttest.Status(401), status: 401, requests: 1},
		{name: "a write that is refused", serve: once(faulttest.Status(403), tagged(nil)), status: 403, requests: 2},
		{name: "change fails", serve: tagged(nil), change: func([]byte, http.Header) ([]byte, error) { return nil, broken }, err: broken, requests: 1},
		{name: "compressed unasked", serve: tagged(http.Header{"Content-Encoding": {"zstd"}}), err: ErrUnreadable, requests: 1},
		{name: "too long", serve: tagged(nil), updater: Updater{MaxBytes: 6}, err: ErrUnreadable, requests: 1},
		{name: "as long as may be", serve: tagged(nil), updater: Updater{MaxBytes: 7}, status: 200, requests: 2},
		{name: "a write that is redirected into a read", serve: once(faulttest.Redirect(302, "/other"), tagged(nil)), err: ErrRedirected, requests: 3},
		{name: "a write that is redirected", serve: once(faulttest.Redirect(307, "/other"), tagged(nil)), status: 200, requests: 3},
		{name: "two tags", serve: tagged(http.Header{"Etag": {`"1"`, `"2"`}}), err: ErrNoETag, requests: 1},
		{name: "a tag without quotes", serve: tagged(http.Header{"Etag": {`1`}}), err: ErrNoETag, requests: 1},
		{name: "two tags in one", serve: tagged(http.Header{"Etag": {`"a""b"`}}), err: ErrNoETag, requests: 1},
		{name: "half a tag", serve: tagged(http.Header{"Etag": {`"`}}), err: ErrNoETag, requests: 1},
		{name: "a tag in a tag", serve: tagged(http.Header{"Etag": {`"a", "b"`}}), err: ErrNoETag, requests: 1},
		{name: "a date of this second", serve: faulttest.Reply{Header: http.Header{"Last-Modified": {"Sat, 01 Jan 2000 00:00:00 GMT"}}}, updater: Updater{LastModified: true}, err: ErrNoETag, requests: 1},
		{name: "a date that is none", serve: faulttest.Reply{Header: http.Header{"Last-Modified": {"yesterday"}}}, updater: Updater{LastModified: true}, err: ErrNoETag, requests: 1},
		{name: "no change", serve: tagged(nil), change: nil, err: errNothing, requests: 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := faulttest.NewInMemory(t, row.serve)
				updater := row.updater
				updater.Client = api.Client()
				change := row.change
				if change == nil && row.err != errNothing {
					change = func(current []byte, _ http.Header) ([]byte, error) { return current, nil }
				}
				resp, err := updater.Update(t.Context(), api.URL+"/a", change)
				switch {
				case row.err == errNothing:
					require.Error(t, err)
				case row.err != nil:
					require.ErrorIs(t, err, row.err)
				default:
					require.NoError(t, err)
					assert.Equal(t, row.status, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
				}
				assert.Len(t, api.Requests(), row.requests, api.Transcript())
			})
		})
	}
}

var errNothing = errors.New("some error")

// TestUpdateRefuses what cannot be meant, before anything is sent.
func TestUpdateRefuses(t *testing.T) {
	t.Parallel()
	change := add(new(int))
	_, err := Update(t.Context(), nil, "http://localhost", change)
	require.ErrorContains(t, err, "Client")
	_, err = (&Updater{Client: http.DefaultClient, Rounds: -1}).Update(t.Context(), "http://localhost", change)
	require.ErrorContains(t, err, "Rounds")
	_, err = Update(t.Context(), http.DefaultClient, "://", change)
	require.Error(t, err)
}

// TestUpdateSends looks at the requests.
func TestUpdateSends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &resource{content: "a"}
		api := faulttest.NewInMemory(t, server)
		updater := Updater{Client: api.Client(), Header: http.Header{"accept": {"text/x-list"}}}
		update := func(change Change) {
			resp, err := updater.Update(t.Context(), api.URL, change)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		update(add(new(int)))
		server.content = ""
		update(func(current []byte, h http.Header) ([]byte, error) {
			assert.Nil(t, current)
			assert.Empty(t, h.Get("Content-Type"), "of the error's text")
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

// TestReadElsewhere has a server lead the read to another one, which must not be sent
// what Header holds.
func TestReadElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := faulttest.NewInMemory(t, faulttest.Redirect(307, "http://elsewhere.test/"))
		elsewhere := &faulttest.Server{Script: &resource{content: "a"}, Network: api, Host: "elsewhere.test"}
		elsewhere.Start(t)
		_, err := Update(t.Context(), api.Client(), api.URL, add(new(int)))
		require.ErrorIs(t, err, ErrRedirected)
		assert.Len(t, elsewhere.Requests(), 1)
	})
}

// TestUpdateWaits between rounds: with jitter, not past the deadline, and not after it
// was cancelled. What the server asks is waited for once.
func TestUpdateWaits(t *testing.T) {
	t.Parallel()
	const never = time.Duration(0)
	steady := resilienthttp.Constant(10 * time.Second)
	for _, row := range []struct {
		name            string
		refuse          faulttest.Reply // of the writes
		backoff         resilienthttp.Backoff
		timeout, cancel time.Duration
		err             error
		writes          int
		least, most     time.Duration
	}{
		{"by itself", faulttest.Reply{Status: 412}, nil, never, never, nil, 5, time.Nanosecond, 4 * time.Second},
		{"as it is told", faulttest.Reply{Status: 412}, steady, never, never, nil, 5, 40 * time.Second, 40 * time.Second},
		{"not past the deadline", faulttest.Reply{Status: 412}, steady, 15 * time.Second, never, context.DeadlineExceeded, 2, 10 * time.Second, 10 * time.Second},
		{"until it is cancelled", faulttest.Reply{Status: 412}, steady, never, 12 * time.Second, context.Canceled, 2, 12 * time.Second, 12 * time.Second},
		{"not what is too long", faulttest.Reply{Status: 409, RetryAfter: time.Hour}, nil, never, never, nil, 1, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &resource{content: "a"}
				writes := 0
				api := faulttest.NewInMemory(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if req.Method == http.MethodPut {
						writes++
						row.refuse.ServeHTTP(w, req)
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
				began := time.Now()
				resp, err := updater.Update(ctx, api.URL, add(new(int)))
				took := time.Since(began)
				if row.err != nil {
					require.ErrorIs(t, err, row.err)
				} else {
					require.NoError(t, err)
					assert.Equal(t, row.refuse.Status, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
				}
				assert.Equal(t, row.writes, writes)
				assert.GreaterOrEqual(t, took, row.least)
				assert.LessOrEqual(t, took, row.most)
			})
		})
	}
}

// TestManyUpdates has many clients add to one list, through a network that loses
// answers: each that was told of success is in it once, and nobody twice.
func TestManyUpdates(t *testing.T) {
	t.Parallel()
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
				updater := Updater{Client: client, Rounds: 50}
				resp, err := updater.Update(t.Context(), api.URL, func(current []byte, _ http.Header) ([]byte, error) {
					return append(append(slices.Clip(current), ','), name...), nil
				})
				if err == nil {
					_ = resp.Body.Close()
				}
				results <- result{name, err == nil && ok(resp), err}
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

package faulttest_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

func TestIdempotent_replays(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, _ time.Duration, start func(http.Handler) *faulttest.Server) {
		charges := new(faulttest.Idempotent)
		srv := start(charges)
		post := func(path, body, key string) (*http.Response, string) {
			resp, text := answered(t, srv.Client(), http.MethodPost, srv.URL+path, body, "Idempotency-Key", key)
			return resp, text
		}
		for i := range 3 {
			resp, text := post("/charges", "100", "k1")
			assert.Equal(t, 201, resp.StatusCode)
			assert.JSONEq(t, `{"id":"1"}`, text)
			assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
			assert.Equal(t, i > 0, resp.Header.Get("Idempotent-Replayed") == "true")
			assert.Len(t, resp.Header.Values("Date"), 1)
		}
		charges.AssertExactlyOnce(t, 1)

		resp, text := post("/charges", "200", "k1")
		assert.Equal(t, 422, resp.StatusCode)
		assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
		assert.Contains(t, text, `"this key was used for another request"`)
		resp, _ = post("/refunds", "100", "k1")
		assert.Equal(t, 422, resp.StatusCode)

		_, text = post("/charges", "100", "k2")
		assert.JSONEq(t, `{"id":"2"}`, text)
		charges.AssertExactlyOnce(t, 2)
		assert.Equal(t, map[string]int{"k1": 1, "k2": 1}, charges.Executions())
		assert.Equal(t, []string{"201 executed", "201 replayed", "201 replayed", "422 other request", "422 other request", "201 executed"},
			outcomes(&srv.Log))

		post("/charges", "100", "")
		post("/charges", "100", "")
		assert.Equal(t, map[string]int{"k1": 1, "k2": 1, "": 2}, charges.Executions())
		charges.AssertExactlyOnce(t, 4)
	})
}

// The execution continues after its client has canceled; a second request gets 409.
func TestIdempotent_inFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		charges := &faulttest.Idempotent{Latency: time.Hour, KeyHeader: "X-Key"}
		srv := faulttest.NewInMemory(t, charges)
		post := func(timeout time.Duration) (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader("x"))
			require.NoError(t, err)
			req.Header.Set("X-Key", "k")
			resp, err := srv.Client().Do(req)
			if err != nil {
				return 0, err
			}
			defer resp.Body.Close()
			return resp.StatusCode, nil
		}
		require.ErrorIs(t, errOf(post(time.Minute)), context.DeadlineExceeded)
		code, err := post(time.Minute)
		require.NoError(t, err)
		assert.Equal(t, 409, code)
		charges.AssertExactlyOnce(t, 1)
		time.Sleep(time.Hour)
		code, err = post(time.Minute)
		require.NoError(t, err)
		assert.Equal(t, 201, code)
		charges.AssertExactlyOnce(t, 1)
		assert.Equal(t, []string{"201 executed, client canceled", "409 in flight", "201 replayed"}, outcomes(&srv.Log))
	})
}

// After a lost response a retry is executed once only with a key.
func TestIdempotent_lostResponse(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, _ time.Duration, start func(http.Handler) *faulttest.Server) {
		for _, key := range []string{"k", ""} {
			charges := &faulttest.Idempotent{Handler: faulttest.OK("charged")}
			srv := start(faulttest.Sequence(faulttest.LoseResponse(charges), charges))
			_, _, err := send(t, srv.Client(), http.MethodPost, srv.URL, "x", "Idempotency-Key", key)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, text := answered(t, srv.Client(), http.MethodPost, srv.URL, "x", "Idempotency-Key", key)
			assert.Equal(t, "charged", text)
			if key != "" {
				assert.True(t, charges.AssertExactlyOnce(t, 1))
				continue
			}
			var fake fakeTB
			assert.False(t, charges.AssertExactlyOnce(&fake, 1))
			failures := fake.failures()
			assert.Contains(t, failures, "faulttest: executions, exactly one for each call\nwant: 1\ngot:  2\n      2 without a key\n\n#  at")
			assert.Contains(t, failures, "executed, reset after read")
		}
	})
}

// Without any request an Idempotent prints the transcript of the test's Server.
func TestIdempotent_withoutRequests(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		tb   faulttest.TB
	}{
		{"a pointer", new(fakeTB)},
		{"a value that is not comparable", incomparable{new(fakeTB), nil}},
		{"a value that wraps one", struct{ faulttest.TB }{incomparable{new(fakeTB), nil}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			charges := new(faulttest.Idempotent)
			srv := faulttest.New(row.tb, faulttest.Status(http.StatusForbidden))
			defer srv.Close()
			status(t, srv, http.MethodPost, "/", "Idempotency-Key", "k")
			assert.False(t, charges.AssertExactlyOnce(row.tb, 1))
			if fake, ok := row.tb.(*fakeTB); ok {
				assert.Regexp(t, `POST / +k +403`, fake.failures())
			}
		})
	}
}

type incomparable struct {
	faulttest.TB

	_ []int
}

func TestIdempotent_TTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		charges := &faulttest.Idempotent{TTL: 24 * time.Hour}
		srv := faulttest.NewInMemory(t, charges)
		post := func() { status(t, srv, http.MethodPost, "/", "Idempotency-Key", "k") }
		post()
		time.Sleep(24*time.Hour - 1)
		resp, _ := answered(t, srv.Client(), http.MethodPost, srv.URL, "", "Idempotency-Key", "k")
		assert.Equal(t, "Sat, 01 Jan 2000 23:59:59 GMT", resp.Header.Get("Date"), "not that of the execution")
		charges.AssertExactlyOnce(t, 1)
		time.Sleep(time.Nanosecond)
		post()
		var fake fakeTB
		assert.False(t, charges.AssertExactlyOnce(&fake, 2), "so many executions, but of one key")
		assert.Contains(t, fake.failures(), "2 for key k")
		assert.Equal(t, map[string]int{"k": 2}, charges.Executions())
	})
}

// After a panic the key can be used again.
func TestIdempotent_panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		charges := &faulttest.Idempotent{Handler: faulttest.Sequence(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") }),
			faulttest.OK(""),
		)}
		var fake fakeTB
		srv := faulttest.NewInMemory(&fake, charges)
		defer srv.Close()
		_, _, err := send(t, srv.Client(), http.MethodPost, srv.URL, "", "Idempotency-Key", "k")
		require.Error(t, err)
		assert.Equal(t, 200, status(t, srv, http.MethodPost, "/", "Idempotency-Key", "k"))
		assert.Equal(t, map[string]int{"k": 2}, charges.Executions())
		assert.Equal(t, []string{"executed, aborted", "200 executed"}, outcomes(&srv.Log))
		assert.Contains(t, fake.logged(), "oops", "net/http logs the panic")
	})
}

// Close ends an execution that takes an hour.
func TestIdempotent_serverClosed(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, unit time.Duration, start func(http.Handler) *faulttest.Server) {
		srv := start(&faulttest.Idempotent{Latency: time.Hour})
		var client sync.WaitGroup
		client.Go(func() {
			_, _, err := send(t, srv.Client(), http.MethodPost, srv.URL, "", "Idempotency-Key", "k")
			assert.Error(t, err)
		})
		await(t, unit, func() bool { return srv.Total() == 1 })
		begin := time.Now()
		srv.Close()
		client.Wait()
		assert.Less(t, time.Since(begin), 30*time.Minute)
		assert.Equal(t, []string{"executed, server closed"}, outcomes(&srv.Log))
	})
}

func TestIdempotent_limits(t *testing.T) {
	t.Parallel()
	charges := &faulttest.Idempotent{Handler: faulttest.ResetAfterRead} // it takes the connection
	srv := faulttest.New(t, charges)
	resp, _, err := send(t, srv.Client(), http.MethodPost, srv.URL, strings.Repeat("x", 8<<20+1))
	require.NoError(t, err)
	assert.Equal(t, 413, resp.StatusCode)
	charges.AssertExactlyOnce(t, 0)
	_, _, err = send(t, srv.Client(), http.MethodPost, srv.URL, "x", "Idempotency-Key", "k")
	require.ErrorIs(t, err, syscall.ECONNRESET)
	charges.AssertExactlyOnce(t, 1)

	var fake fakeTB
	assert.False(t, new(faulttest.Idempotent).AssertExactlyOnce(&fake, 1))
	assert.Equal(t, "faulttest: executions, exactly one for each call\nwant: 1\ngot:  0\n\nno transcript: serve log.Record(handler), with a faulttest.Log", fake.failures())
}

// await waits until the server has recorded something.
func await(t *testing.T, unit time.Duration, what func() bool) {
	t.Helper()
	if unit == time.Hour {
		synctest.Wait()
		require.True(t, what())
		return
	}
	require.Eventually(t, what, time.Minute, time.Millisecond)
}

package faulttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// silentWays are the networks and protocols of a silent connection.
var silentWays = []struct {
	name            string
	inMemory, http2 bool
}{
	{"HTTP/1.1 in memory", true, false},
	{"HTTP/2 in memory", true, true},
	{"HTTP/1.1 on a socket", false, false},
	{"HTTP/2 on a socket", false, true},
}

// onSilentWays runs the test on each network: in memory in a bubble, so that a call waits for a minute.
func onSilentWays(t *testing.T, script func() http.Handler, f func(t *testing.T, srv *faulttest.Server, patience time.Duration)) {
	t.Helper()
	for _, way := range silentWays {
		t.Run(way.name, func(t *testing.T) {
			run := func(t *testing.T, patience time.Duration) {
				t.Helper()
				srv := &faulttest.Server{Script: script(), InMemory: way.inMemory, HTTP2: way.http2}
				srv.Start(t)
				f(t, srv, patience)
			}
			if way.inMemory {
				synctest.Test(t, func(t *testing.T) { run(t, time.Minute) })
			} else {
				run(t, 100*time.Millisecond)
			}
		})
	}
}

// proto makes a call, and returns the protocol of its response.
func proto(client *http.Client, url string, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Proto, errors.Join(err, resp.Body.Close())
}

// Silence: the open connection stays silent, for all calls that use it. A new one works.
func TestServer_Silence(t *testing.T) {
	onSilentWays(t, func() http.Handler { return faulttest.OK("ok") }, func(t *testing.T, srv *faulttest.Server, patience time.Duration) {
		got, err := proto(srv.Client(), srv.URL, time.Hour)
		require.NoError(t, err)
		require.Equal(t, srv.HTTP2, got == "HTTP/2.0", got)
		srv.Silence()
		_, err = proto(srv.Client(), srv.URL, patience)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, srv.Requests(), 1, "no byte arrives")
		if srv.HTTP2 { // the client keeps the connection
			_, err = proto(srv.Client(), srv.URL, patience)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			srv.Client().CloseIdleConnections()
		}
		other := srv.Transport().Clone()
		defer other.CloseIdleConnections()
		_, err = proto(&http.Client{Transport: other}, srv.URL, time.Hour)
		require.NoError(t, err)
		require.Len(t, srv.Requests(), 2)
		require.Equal(t, 2, srv.Requests()[1].Conn)
	})
}

// The client of a silent connection sees neither the response of a request in progress, nor the end
// of the connection by its server.
func TestServer_Silence_hidesTheServersEnd(t *testing.T) {
	begun := make(chan struct{}, 1)
	next := make(chan struct{}, 1)
	script := func() http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			begun <- struct{}{}
			<-next
			w.Header().Set("Connection", "close")
		})
	}
	for _, way := range silentWays {
		t.Run(way.name, func(t *testing.T) {
			srv := &faulttest.Server{Script: script(), InMemory: way.inMemory, HTTP2: way.http2}
			srv.Start(t)
			done := make(chan error)
			go func() {
				_, err := proto(srv.Client(), srv.URL, 200*time.Millisecond)
				done <- err
			}()
			<-begun
			srv.Silence()
			next <- struct{}{}
			require.ErrorIs(t, <-done, context.DeadlineExceeded)
		})
	}
}

// Silent: the request's connection is silent, and so are later calls of HTTP/2 on it.
func TestSilent(t *testing.T) {
	script := func() http.Handler { return faulttest.Sequence(faulttest.Silent, faulttest.OK("ok")) }
	onSilentWays(t, script, func(t *testing.T, srv *faulttest.Server, patience time.Duration) {
		_, err := proto(srv.Client(), srv.URL, patience)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, faulttest.Silent, srv.Requests()[0].Fault)
		_, err = proto(srv.Client(), srv.URL, patience)
		if srv.HTTP2 {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Len(t, srv.Requests(), 1)
			srv.Client().CloseIdleConnections()
			return
		}
		require.NoError(t, err)
		require.Equal(t, 2, srv.Requests()[1].Conn)
	})
}

// Close ends silent connections, also those that no client closes.
func TestServer_Silence_endsWithTheServer(t *testing.T) {
	script := func() http.Handler { return faulttest.Silent }
	onSilentWays(t, script, func(t *testing.T, srv *faulttest.Server, _ time.Duration) {
		done := make(chan error)
		go func() {
			_, err := proto(srv.Client(), srv.URL, time.Hour)
			done <- err
		}()
		for len(srv.Requests()) == 0 || srv.Requests()[0].Fault != faulttest.Silent {
			time.Sleep(time.Millisecond)
		}
		srv.Close()
		err := <-done
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

// The open connection goes silent: a call on it ends with its timeout only. The next call has a new
// connection.
func ExampleServer_Silence() {
	srv := faulttest.New(nil, faulttest.OK("ok"))
	defer srv.Close()
	client := srv.Client()
	client.Timeout = 100 * time.Millisecond
	call := func() {
		resp, err := client.Get(srv.URL)
		if err != nil {
			fmt.Println("timeout:", errors.Is(err, context.DeadlineExceeded))
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	call()
	srv.Silence()
	call()
	call()
	// Output:
	// 200 OK
	// timeout: true
	// 200 OK
}

package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
)

// childMode selects what the test binary does as a child: run, panic, deadlock or hang.
const childMode = "LAB_TEST_CHILD"

func TestMain(m *testing.M) {
	mode := os.Getenv(childMode)
	if mode == "" {
		os.Exit(m.Run())
	}
	bubble.Main(func(t *testing.T) error {
		query, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if err != nil {
			return err
		}
		switch mode {
		case "panic":
			synctest.Test(t, func(*testing.T) { panic("library is broken") })
		case "deadlock":
			synctest.Test(t, func(*testing.T) { <-make(chan int) })
		case "hang":
			fmt.Println(`{"progress":0.5}`)
			select {}
		}
		return Child(t, strings.TrimSpace(query), os.Stdout)
	})
}

// labServer is a lab with children of the mode.
type labServer struct {
	*httptest.Server
	started chan *exec.Cmd
}

func newLab(t *testing.T, mode string) *labServer {
	t.Helper()
	l := &labServer{started: make(chan *exec.Cmd, 10)}
	r := newRunner(func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), childMode+"="+mode)
		l.started <- cmd
		return cmd
	})
	r.patience = 50 * time.Millisecond
	l.Server = httptest.NewServer(newHandler(r))
	t.Cleanup(l.Close)
	return l
}

func (l *labServer) run(ctx context.Context, t *testing.T, query string, edit func(*http.Request)) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL+"/run", strings.NewReader(query))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if edit != nil {
		edit(req)
	}
	resp, err := l.Client().Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func events(t *testing.T, resp *http.Response) (all []event) {
	t.Helper()
	for decoder := json.NewDecoder(resp.Body); decoder.More(); {
		var e event
		require.NoError(t, decoder.Decode(&e))
		all = append(all, e)
	}
	return all
}

// A run streams its URL, its progress and its result: figures of each library, and their plots.
func TestRun_streamsProgressAndResult(t *testing.T) {
	t.Parallel()
	l := newLab(t, "run")
	query := url.Values{
		"clients": {"50"}, "total": {"20s"}, "start": {"5s"}, "length": {"5s"}, "failure": {"status"},
		"config": {`{"Policy": {"MaxAttempts": 2}}`},
	}
	resp := l.run(t.Context(), t, query.Encode(), nil)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	all := events(t, resp)
	require.Equal(t, "/?"+query.Encode(), all[0].URL)
	last := 0.0
	for _, e := range all[1 : len(all)-1] {
		require.Greater(t, e.Progress, last)
		last = e.Progress
	}
	require.Greater(t, last, 0.9)
	html := all[len(all)-1].Result
	require.Equal(t, 5, strings.Count(html, `src="data:image/svg&#43;xml;base64,`), html)
	require.Contains(t, html, "resilienthttp is better than bare by")
	require.Contains(t, html, "resilienthttp, defaults is ")
}

func TestRun_errorsAtTheField(t *testing.T) {
	t.Parallel()
	l := newLab(t, "run")
	resp := l.run(t.Context(), t, "clients=0&config=%7B", nil)
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Equal(t, []event{{Errors: FormError{"clients": `"0" (want 1 to 10000)`, "config": "config: line 1: unexpected end of JSON input"}}}, events(t, resp))
	require.Empty(t, l.started, "no child")
}

func TestRun_childThatDies(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"panic": "library is broken", "deadlock": "deadlock: "} {
		all := events(t, newLab(t, mode).run(t.Context(), t, "", nil))
		failed := all[len(all)-1].Failed
		require.Contains(t, failed, "the run ended: ", mode)
		require.Contains(t, failed, want, mode)
		require.NotContains(t, failed, "\ngoroutine ", mode)
	}
}

// A browser that leaves ends the child. Until then another run is rejected.
func TestRun_oneAtATime(t *testing.T) {
	t.Parallel()
	l := newLab(t, "hang")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp := l.run(ctx, t, "", nil)
	decoder := json.NewDecoder(resp.Body)
	for e := (event{}); e.Progress == 0; {
		require.NoError(t, decoder.Decode(&e))
	}
	other := l.run(t.Context(), t, "", nil)
	require.Equal(t, http.StatusConflict, other.StatusCode)
	require.Equal(t, []event{{Failed: errBusy.Error()}}, events(t, other))
	leave()
	child := <-l.started
	require.Eventually(t, func() bool {
		resp := l.run(t.Context(), t, "", nil)
		return resp.StatusCode == http.StatusOK
	}, 30*time.Second, 20*time.Millisecond, "the slot is free")
	require.ErrorIs(t, child.Process.Signal(syscall.Signal(0)), os.ErrProcessDone, "the child has ended")
}

// Only this page may start runs, and only on the loopback.
func TestHandler_rejectsOtherSites(t *testing.T) {
	t.Parallel()
	l := newLab(t, "run")
	for name, edit := range map[string]func(*http.Request){
		"another Host":   func(r *http.Request) { r.Host = "lab.attacker.test" },
		"another Origin": func(r *http.Request) { r.Header.Set("Origin", "https://attacker.test") },
		"cross-site":     func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	} {
		require.Equal(t, http.StatusForbidden, l.run(t.Context(), t, "", edit).StatusCode, name)
	}
	require.Empty(t, l.started, "no child")
	for host, ok := range map[string]bool{
		"127.0.0.1:8099": true, "localhost:8099": true, "[::1]:8099": true, "127.1.2.3": true, "::1": true,
		"example.com": false, "127.0.0.1.attacker.test": false, "10.0.0.1:8099": false, "": false,
	} {
		require.Equal(t, ok, isLoopback(host), host)
	}
}

// Package restart tests clients with a server that restarts: an nginx, or a process that is killed.
package restart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// server is an nginx process.
type server struct {
	tb      testing.TB
	program string
	dir     string
	address string
	process *exec.Cmd
}

const configuration = `
daemon off;
worker_processes 2;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s;
		location / { return 200 "fine"; }
	}
}
`

// newServer starts an nginx, or skips the test if it is not installed.
func newServer(tb testing.TB) *server {
	tb.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		tb.Skip("nginx is not installed, or not in PATH")
	}
	l, err := net.Listen("tcp", loopback()+":0")
	require.NoError(tb, err)
	s := &server{tb: tb, program: program, dir: tb.TempDir(), address: l.Addr().String()}
	require.NoError(tb, l.Close())
	require.NoError(tb, os.WriteFile(filepath.Join(s.dir, "nginx.conf"), fmt.Appendf(nil, configuration, s.dir, s.address), 0o600))
	s.start()
	tb.Cleanup(s.stop)
	return s
}

// loopback returns a separate loopback address, if the system has one. On a shared address,
// the port of a stopped server may be assigned to another test.
func loopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// start returns when the server listens.
func (s *server) start() {
	s.process = exec.Command(s.program, "-p", s.dir, "-c", filepath.Join(s.dir, "nginx.conf"))
	s.process.Stderr = os.Stderr
	require.NoError(s.tb, s.process.Start())
	awaitListener(s.tb, s.address)
}

// awaitListener returns when a process listens on the address.
func awaitListener(tb testing.TB, address string) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, time.Millisecond, "the server does not listen")
}

// stop ends the server and its connections.
func (s *server) stop() {
	_ = s.process.Process.Signal(os.Interrupt)
	_ = s.process.Wait()
}

const workers = 8

// tally counts the results of one client.
type tally struct {
	calls, failures atomic.Int64
	time, lost      atomic.Int64 // of the workers: total, and of failed calls, with the pause before each

	mu      sync.Mutex
	reasons map[string]int
}

// failed records the kind of failure.
func (t *tally) failed(err error) {
	t.failures.Add(1)
	reason := "no *Error"
	if e, ok := errors.AsType[*resilienthttp.Error](err); ok && e.Reason != nil {
		reason = fmt.Sprintf("%v, attempts: %d", e.Reason, len(e.Attempts))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reasons[reason]++
}

// down is the ratio of the workers' time with failed calls. The number of failures is not
// comparable: a client that fails faster fails more often in the same time.
func (t *tally) down() float64 {
	return float64(t.lost.Load()) / float64(max(t.time.Load(), 1))
}

// load makes calls with 8 workers, until stop is closed.
func load(url string, client *http.Client, deadline, pause time.Duration, stop chan struct{}, wg *sync.WaitGroup) *tally {
	t := &tally{reasons: map[string]int{}}
	for range workers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
				t.calls.Add(1)
				begun := time.Now()
				err := get(url, client, deadline)
				took := int64(pause + time.Since(begun)) // the nominal pause, because the machine may be suspended
				t.time.Add(took)
				if err != nil {
					t.failed(err)
					t.lost.Add(took)
				}
			}
		})
	}
	return t
}

func get(url string, client *http.Client, deadline time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return send(client, req)
}

// send sends a request and reads the response. Another status than 200 is an error.
func send(client peers.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// noise is the permitted additional down time of this library, by chance or because it sends
// fewer requests just after a restart: .015 on an idle machine.
const noise = .1

// Eight workers of a bare client and eight of this library call the same nginx, which
// restarts, or stops for 5 s.
func TestRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s of real time")
	}
	for _, row := range []struct {
		name            string
		down            time.Duration
		deadline, pause time.Duration
		before          int64   // calls of this library, for at most ten seconds
		most            float64 // failures of this library per failure of the bare client; 0: unlimited
	}{
		// The target is 10 failures; an idle machine has 7 to 11. One call of each worker is in flight
		// during the restart, and by chance all its attempts fail within 550 ms. A busy machine has
		// more, so the test compares them with the bare client's 600 or more. The calls before the
		// restart fill the retry budget.
		{"restarted", 550 * time.Millisecond, 30 * time.Second, 3 * time.Millisecond, 3000, .3},
		{"stopped for 5 s", 5 * time.Second, 3 * time.Second, 50 * time.Millisecond, 300, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newServer(t)
			bare, ours := &http.Client{Transport: resilienthttp.NewBase()}, resilienthttp.NewClient()
			var wg sync.WaitGroup
			stop := make(chan struct{})
			bares := load("http://"+s.address, bare, row.deadline, row.pause, stop, &wg)
			mine := load("http://"+s.address, ours, row.deadline, row.pause, stop, &wg)
			began := time.Now()
			for mine.calls.Load() < row.before && time.Since(began) < 10*time.Second {
				time.Sleep(10 * time.Millisecond)
			}
			enough := mine.calls.Load() >= row.before
			began = time.Now()
			s.stop()
			time.Sleep(row.down)
			s.start()
			down := time.Since(began)
			time.Sleep(2 * time.Second)
			close(stop)
			wg.Wait()
			bare.CloseIdleConnections()
			ours.CloseIdleConnections()
			t.Logf("down for %v; bare: %d of %d calls failed; ours: %d of %d, %v; without a server %.3f and %.3f of the time", down.Round(time.Millisecond),
				bares.failures.Load(), bares.calls.Load(), mine.failures.Load(), mine.calls.Load(), mine.reasons, bares.down(), mine.down())
			require.NotZero(t, bares.failures.Load(), "there was nothing to bear")
			require.LessOrEqual(t, mine.down(), bares.down()+noise)
			if row.most > 0 && enough && down < 2*row.down { // otherwise the machine is too slow for this row
				require.LessOrEqual(t, float64(mine.failures.Load()), row.most*float64(bares.failures.Load()))
			}
		})
	}
}

//go:build killed

package restart

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shops is the environment variable that makes this program a shop: the address to listen on and
// the file of the keys, separated by a space.
const shops = "RESTART_SHOP"

func TestMain(m *testing.M) {
	if address, file, ok := strings.Cut(os.Getenv(shops), " "); ok {
		fmt.Fprintln(os.Stderr, serveShop(address, file))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const (
	keyHeader = "Idempotency-Key"
	work      = 20 * time.Millisecond // of a request, half of it before and half after the key is stored
)

// serveShop does the work of each key once. The file has the keys of the work that is done: a line
// that was written is there after the process was killed.
func serveShop(address, file string) error {
	go func() { // the end of the standard input is the end of the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	done := ledger{file: file}
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(work / 2)
		if err := done.once(r.Header.Get(keyHeader)); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		time.Sleep(work / 2)
	}))
}

// ledger is the file of the keys.
type ledger struct {
	mu   sync.Mutex
	file string
}

// once appends the key, unless the file has it. The file is small enough to be read each time.
func (l *ledger) once(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, err := os.ReadFile(l.file)
	if err != nil || slices.Contains(strings.Fields(string(text)), key) {
		return err
	}
	log, err := os.OpenFile(l.file, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = log.WriteString(key + "\n")
	return errors.Join(err, log.Close())
}

// shop is the process of serveShop.
type shop struct {
	tb            testing.TB
	address, file string
	process       *exec.Cmd
}

func newShop(tb testing.TB) *shop {
	tb.Helper()
	l, err := net.Listen("tcp", loopback()+":0")
	require.NoError(tb, err)
	require.NoError(tb, l.Close())
	s := &shop{tb: tb, address: l.Addr().String(), file: filepath.Join(tb.TempDir(), "keys")}
	require.NoError(tb, os.WriteFile(s.file, nil, 0o600))
	s.start()
	tb.Cleanup(s.kill)
	return s
}

// start returns when the shop listens.
func (s *shop) start() {
	s.process = exec.Command(os.Args[0])
	s.process.Env = append(os.Environ(), shops+"="+s.address+" "+s.file)
	s.process.Stderr = os.Stderr
	_, err := s.process.StdinPipe()
	require.NoError(s.tb, err)
	require.NoError(s.tb, s.process.Start())
	awaitListener(s.tb, s.address)
}

// kill ends the process as kill -9 does.
func (s *shop) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// times counts how often the work of each key was done.
func (s *shop) times() map[string]int {
	text, err := os.ReadFile(s.file)
	require.NoError(s.tb, err)
	times := map[string]int{}
	for key := range strings.FieldsSeq(string(text)) {
		times[key]++
	}
	return times
}

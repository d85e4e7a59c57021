package sqlitestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// childRole says, in the environment, what the test binary is to do as another
// process, with which database: see children.
const childRole = "SQLITESTORE_CHILD"

func TestMain(m *testing.M) {
	role := os.Getenv(childRole)
	if role == "" {
		os.Exit(m.Run())
	}
	args := strings.SplitN(role, " ", 3)
	if err := children[args[0]](context.Background(), args[1], args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

var children = map[string]func(ctx context.Context, arg, path string) error{
	// life dies at the n-th thing that is written, and says what it has done before.
	"life": func(ctx context.Context, arg, path string) error {
		s, err := Open(ctx, path)
		if err != nil {
			return err
		}
		left, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		if err := s.dieAt(ctx, left); err != nil {
			return err
		}
		if err := life(ctx, s, "mortal", func(what string) { fmt.Println(what) }); err != nil {
			return err
		}
		fmt.Println("survived")
		return s.Close()
	},

	// work sends what is due, to the bank of that name, until it is killed.
	"work": func(ctx context.Context, name, path string) error {
		s, err := Open(ctx, path)
		if err != nil {
			return err
		}
		fmt.Println("working")
		return engine(s, gateway(s, name)).Run(ctx)
	},
}

// dieAt has SQLite kill the process when it is about to write the n-th row, or to
// commit.
func (s *Store) dieAt(ctx context.Context, n int) error {
	conn, err := s.kit.Write.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	step := func() {
		if n--; n == 0 {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
	}
	return sqlitekit.OnConn(conn, func(hooks sqlitekit.Conn) error {
		hooks.RegisterPreUpdateHook(func(sqlite.SQLitePreUpdateData) { step() })
		hooks.RegisterCommitHook(func() int32 { step(); return 0 })
		return nil
	})
}

// startChild starts another process, and gives the lines that it says.
func startChild(ctx context.Context, role, arg, path string) (*exec.Cmd, *bufio.Scanner, error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role+" "+arg+" "+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	err = cmd.Start()
	return cmd, bufio.NewScanner(out), err
}

// TestCrashBetweenStatements kills a process before each row that it writes and before
// each commit. What it has said is there, what it was about to do is there wholly or not
// at all, and everything comes to its end.
func TestCrashBetweenStatements(t *testing.T) {
	for n := 1; ; n++ {
		path := filepath.Join(t.TempDir(), "test.db")
		cmd, lines, err := startChild(t.Context(), "life", strconv.Itoa(n), path)
		require.NoError(t, err)
		var said []string
		for lines.Scan() {
			said = append(said, lines.Text())
		}
		_ = cmd.Wait()
		s, err := Open(t.Context(), path)
		require.NoError(t, err)
		checkBooks(t, s)
		stats, err := s.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, afterLife[len(said)], stats.States, "killed at %d, after %q", n, said)
		there := 0
		for _, n := range stats.States {
			there += n
		}
		bury(t, s)
		over, err := s.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, there, over.States[driver.StateDone]+over.States[driver.StateCanceled], "killed at %d", n)
		require.NoError(t, s.Close())
		if len(said) > 0 && said[len(said)-1] == "survived" {
			assert.Greater(t, n, 30, "it was killed that often")
			return
		}
		require.False(t, t.Failed())
	}
}

// afterLife is what there is after so many verbs of a life.
var afterLife = []map[driver.State]int{
	{},
	{driver.StatePending: 3},
	{driver.StateSending: 3},
	{driver.StateDone: 1, driver.StateDead: 1, driver.StateUnknown: 1},
	{driver.StateDone: 1, driver.StateDead: 1, driver.StateUnknown: 1},    // resolved as refused
	{driver.StateDone: 1, driver.StateWaiting: 1, driver.StateUnknown: 1}, // redriven
	{driver.StateDone: 1, driver.StateSending: 2},
	{driver.StateDone: 1, driver.StateUnknown: 2}, // left: no worker sends them any more
	{driver.StateDone: 1, driver.StateUnknown: 2}, // reaped
	{driver.StateDone: 2, driver.StateUnknown: 1},
	{driver.StateDone: 3},
	{driver.StateDone: 3, driver.StatePending: 1},
	{driver.StateDone: 3, driver.StateSending: 1},
	{driver.StateDone: 3, driver.StateDead: 1},
	{driver.StateDone: 3, driver.StateWaiting: 1}, // revised
	{driver.StateDone: 3, driver.StateWaiting: 1}, // beaten
	{driver.StateDone: 3, driver.StateCanceled: 1},
	{driver.StateDone: 3, driver.StateCanceled: 1}, // left again
	{driver.StateDone: 3, driver.StateCanceled: 1}, // reaped again
	{driver.StateDone: 3, driver.StateCanceled: 1}, // survived
}

// bank keeps its book in the same file, but not in the store's transactions. It does the work
// of a key once.
type bank struct{ s *Store }

func (b bank) Send(_ context.Context, s *durable.Send) driver.Outcome {
	_, err := b.s.DB().Exec("INSERT INTO bank (key, charge) SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM bank WHERE key = ?1)",
		s.Key, s.Intent.ID.Key)
	return answer(s, err)
}

func answer(s *durable.Send, err error) driver.Outcome {
	if err != nil || rand.IntN(10) == 0 { // it is lost
		return driver.Outcome{Err: err}
	}
	return driver.Outcome{Class: driver.ClassSucceeded, Reference: s.Key}
}

// ledger is a bank that knows no keys: it books whatever it is sent, and can be asked.
type ledger struct{ bank }

// ledgerSettles is how long after the end of a send it may yet be booked.
const ledgerSettles = 200 * time.Millisecond

// Send sometimes does the work after the sender has given up.
func (l ledger) Send(_ context.Context, s *durable.Send) driver.Outcome {
	if late := *s; rand.IntN(10) == 0 {
		time.AfterFunc(ledgerSettles/2, func() { _ = l.book(&late) })
		return driver.Outcome{}
	}
	return answer(s, l.book(s))
}

// book keeps the promise however long this process, or its turn to write, is waited for.
func (l ledger) book(s *durable.Send) error {
	booked, err := sqlitekit.Affected(l.s.DB().Exec(`INSERT INTO bank (key, charge) SELECT ?1, ?2 WHERE NOT EXISTS (
		SELECT 1 FROM durable_intent i LEFT JOIN durable_attempt a ON a.intent = i.id AND a.n = ?6
		WHERE i.scope = ?3 AND i.operation = ?4 AND i.key = ?5
			AND CASE i.a_n WHEN ?6 THEN i.a_finished ELSE a.finished_at END + ?7 <=`+now+`)`,
		s.Key, s.Intent.ID.Key, s.Intent.ID.Scope, s.Intent.ID.Operation, s.Intent.ID.Key, s.Generation, ledgerSettles.Microseconds()))
	if err == nil && booked == 0 {
		err = errors.New("it comes too late")
	}
	return err
}

func (l ledger) Find(_ context.Context, s *durable.Send) driver.Outcome {
	n := 0
	if err := l.s.DB().QueryRow("SELECT count(*) FROM bank WHERE charge = ?", s.Intent.ID.Key).Scan(&n); err != nil {
		return driver.Outcome{Err: err}
	}
	return driver.Outcome{Class: map[bool]driver.Class{true: driver.ClassSucceeded, false: driver.ClassNotFound}[n > 0]}
}

// KeyPolicy implements durable.Protector.
func (ledger) KeyPolicy() (keyLife, settles time.Duration) { return -1, ledgerSettles }

// gateway is a bank by its name.
func gateway(s *Store, name string) durable.Gateway {
	if name == "ledger" {
		return ledger{bank{s}}
	}
	return bank{s}
}

func engine(s driver.Store, gateway durable.Gateway) *durable.Engine {
	return &durable.Engine{
		Store: s, Gateways: map[string]durable.Gateway{"psp": gateway},
		Policy:        durable.Schedule{MaxAttempts: -1, Backoff: resilienthttp.FullJitter(20*time.Millisecond, 500*time.Millisecond)},
		LeaseDuration: time.Second, PollInterval: 20 * time.Millisecond, DrainTimeout: -1,
	}
}

// TestWorkersAreKilled has processes send and be killed at any moment. In the end each
// charge was made once, by a bank that dedupes keys, and by one that knows none.
func TestWorkersAreKilled(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bank", "ledger"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killWorkers(t, name)
		})
	}
}

func killWorkers(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.DB().Exec("CREATE TABLE bank (key TEXT NOT NULL, charge TEXT NOT NULL) STRICT; CREATE INDEX bank_charge ON bank (charge); CREATE INDEX bank_key ON bank (key)")
	require.NoError(t, err)
	const charges, workers, kills = 400, 2, 6
	var events []driver.Event
	for i := range charges {
		events = append(events, enqueue(fmt.Sprint("tenant ", i%7), strconv.Itoa(i)))
	}
	_, err = apply(t.Context(), s, events...)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan struct{})
	for range workers {
		go func() {
			defer func() { over <- struct{}{} }()
			for range kills / workers {
				cmd, lines, err := startChild(ctx, "work", name, path)
				if !assert.NoError(t, err) {
					return
				}
				lines.Scan()
				select {
				case <-time.After(time.Duration(10+rand.IntN(100)) * time.Millisecond):
				case <-ctx.Done():
				}
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		}()
	}
	for range workers {
		<-over
	}
	ended := make(chan error)
	go func() { ended <- engine(s, gateway(s, name)).Run(ctx) }()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		stats, err := s.Stats(t.Context())
		require.NoError(t, err)
		if stats.States[driver.StateDone] == charges {
			break
		}
		require.Less(t, time.Now(), deadline, "%v", stats)
	}
	cancel()
	require.NoError(t, <-ended)
	checkBooks(t, s)
	var booked, distinct, attempts int
	require.NoError(t, s.DB().QueryRow("SELECT count(*), count(DISTINCT charge) FROM bank").Scan(&booked, &distinct))
	require.NoError(t, s.DB().QueryRow("SELECT sum(tries) FROM durable_intent").Scan(&attempts))
	assert.Equal(t, charges, booked)
	assert.Equal(t, charges, distinct)
	t.Logf("%d attempts for %d charges", attempts, charges)
}

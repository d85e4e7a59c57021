package sqlitestore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

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
}

// dieAt has SQLite kill the process when it is about to write the n-th row, or to
// commit.
func (s *Store) dieAt(ctx context.Context, n int) error {
	conn, err := s.db.kit.Write.Conn(ctx)
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

package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/redisstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
)

const (
	socketVariable = "RESILIENTHTTP_REDISSTORE_SOCKET" // of a process of TestExecutor_processes
	processKeys    = 200
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(socketVariable); socket != "" {
		executeAll(socket)
		return
	}
	os.Exit(m.Run())
}

// executeAll executes the same operations as other processes, and writes a line for each
// execution and for each result.
func executeAll(socket string) {
	s := redisstore.New(redis.NewClient(options("unix", socket)), nil)
	for n := range processKeys {
		for {
			result, err := idempotency.DoJSON(context.Background(), s, "tenant", "op", strconv.Itoa(n), "v1:a",
				func(context.Context) (int, error) {
					fmt.Println("executed", n, os.Getpid())
					return os.Getpid(), nil
				})
			if err == nil {
				fmt.Println("result", n, result)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// Processes that race for the same keys execute each once, and all get its result.
func TestExecutor_processes(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	program, err := os.Executable()
	require.NoError(t, err)
	const processes = 4
	outputs := make([]string, processes)
	together(processes, func(i int) {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), socketVariable+"="+server.Socket())
		output, err := cmd.CombinedOutput()
		assert.NoError(t, err)
		outputs[i] = string(output)
	})
	executed, results := map[int][]int{}, map[int][]int{}
	lines := bufio.NewScanner(strings.NewReader(strings.Join(outputs, "")))
	for lines.Scan() {
		var what string
		var n, pid int
		_, err := fmt.Sscan(lines.Text(), &what, &n, &pid)
		require.NoError(t, err, lines.Text())
		if what == "executed" {
			executed[n] = append(executed[n], pid)
		} else {
			results[n] = append(results[n], pid)
		}
	}
	for n := range processKeys {
		require.Len(t, executed[n], 1, "executions of %d", n)
		require.Len(t, results[n], processes)
		for _, pid := range results[n] {
			require.Equal(t, executed[n][0], pid, "result of %d", n)
		}
	}
}

// With appendfsync always, what was acknowledged before a SIGKILL of the server is there
// after its restart.
func TestStore_serverKilled(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	c := connect(t, server)
	s := redisstore.New(c, nil)
	for round := range 5 {
		require.Eventually(t, func() bool { return c.ConfigSet(t.Context(), "appendfsync", "always").Err() == nil }, time.Minute, time.Millisecond)
		var mu sync.Mutex
		held, done := map[string]driver.Lease{}, map[string]string{}
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for n := 0; ; n++ {
					key := fmt.Sprint(round, "-", worker, "-", n)
					reservation, err := s.Reserve(t.Context(), newClaim(key))
					if err != nil {
						return
					}
					lease := reservation.Record.Lease()
					mu.Lock()
					held[key] = lease
					mu.Unlock()
					if n%2 == 0 {
						continue
					}
					if s.Complete(t.Context(), lease, completed(key)) != nil {
						return
					}
					mu.Lock()
					done[key] = key
					mu.Unlock()
				}
			})
		}
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(done) > 100
		}, time.Minute, time.Millisecond)
		require.NoError(t, server.Crash())
		all.Wait()
		require.NoError(t, server.Restart(t.Context()))
		for key := range held {
			record, err := s.Load(t.Context(), newClaim(key).ID)
			for err != nil && !strings.Contains(err.Error(), "no such record") { // a connection of before
				record, err = s.Load(t.Context(), newClaim(key).ID)
			}
			require.NoError(t, err, key)
			require.Equal(t, held[key], record.Lease())
			if body, ok := done[key]; ok {
				require.Equal(t, driver.Completed, record.Status)
				require.Equal(t, body, string(record.Result.Body))
			}
		}
		t.Logf("%d claims and %d results survived", len(held), len(done))
	}
}

func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

package sqlitestore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// childRole is the environment variable with the role of a child process.
const childRole = "SQLITESTORE_CHILD"

func TestMain(m *testing.M) {
	role := os.Getenv(childRole)
	if role == "" {
		os.Exit(m.Run())
	}
	name, path, _ := strings.Cut(role, "=")
	if err := children[name](context.Background(), path); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// children are the roles of other processes that use the database at path. They print
// a line for each event that the parent waits for.
var children = map[string]func(ctx context.Context, path string) error{}

// child is another process.
type child struct {
	*exec.Cmd
	lines *bufio.Scanner
}

func startChild(t *testing.T, role, path string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return &child{cmd, bufio.NewScanner(out)}
}

func (c *child) line(t *testing.T) string {
	t.Helper()
	require.True(t, c.lines.Scan(), "the child has ended")
	return c.lines.Text()
}

func decisionOf(t *testing.T, store idempotency.Store, claim idempotency.Claim) string {
	t.Helper()
	reservation, err := store.Reserve(t.Context(), claim)
	assert.NoError(t, err)
	return reservation.Decision.String()
}

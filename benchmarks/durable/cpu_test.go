package durable_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// meter measures the CPU time in seconds of this process and of a pool's server, which must run
// on this machine under Linux. On other systems it measures nothing.
type meter struct {
	b              *testing.B
	pool           *pgxpool.Pool
	client, server []float64 // per round
}

func (m *meter) begin() {
	if m == nil {
		return
	}
	client, server := m.read()
	m.client, m.server = append(m.client, client), append(m.server, server)
}

func (m *meter) end() {
	if m == nil {
		return
	}
	client, server := m.read()
	last := len(m.client) - 1
	m.client[last] = client - m.client[last]
	m.server[last] = server - m.server[last]
}

func (m *meter) read() (client, server float64) {
	var backend int
	require.NoError(m.b, m.pool.QueryRow(m.b.Context(), "SELECT pg_backend_pid()").Scan(&backend))
	postmaster := processOf(fmt.Sprintf("/proc/%d/stat", backend)).parent
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		switch p := processOf(file); {
		case p.id == os.Getpid():
			client = p.own
		case p.id == postmaster:
			server += p.own + p.exited
		case p.parent == postmaster:
			server += p.own
		}
	}
	return client, server
}

// process is a process with its CPU time, including children that have exited.
type process struct {
	id, parent  int
	own, exited float64
}

// processOf reads a file like /proc/1/stat. It returns a zero process if the process has exited.
func processOf(file string) (p process) {
	const ticksPerSecond = 100
	text, _ := os.ReadFile(file)
	id, _, _ := strings.Cut(string(text), " ")
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return process{}
	}
	numbers := make([]float64, len(fields))
	for i, field := range fields {
		numbers[i], _ = strconv.ParseFloat(field, 64)
	}
	p.id, _ = strconv.Atoi(id)
	p.parent = int(numbers[1])
	p.own, p.exited = (numbers[11]+numbers[12])/ticksPerSecond, (numbers[13]+numbers[14])/ticksPerSecond
	return p
}

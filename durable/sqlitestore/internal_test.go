package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/durable/internal/storetest"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

func openInternal(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func pragma(t *testing.T, db *sql.DB, name string) (value int) {
	t.Helper()
	require.NoError(t, db.QueryRow("PRAGMA "+name).Scan(&value))
	return value
}

func enqueue(scope, key string) durable.Event {
	return durable.Event{Kind: durable.EventEnqueue, Intent: durable.Intent{
		ID: idempotency.ID{Scope: scope, Operation: "charge", Key: key}, Gateway: "psp", Payload: []byte(strings.Repeat("payload of "+key, 500)),
	}}
}

func claimOf(worker string) durable.Claim {
	return durable.Claim{
		Worker: worker, Lease: time.Hour, Limit: 100,
		Gateways: map[string]durable.Allowance{"psp": {Terms: durable.Terms{KeyTTL: time.Hour, CanQuery: true}, Limit: 100, PerScope: 100}},
	}
}

var errLong = errors.New(strings.Repeat("wrong ", 150))

func finish(r *durable.Record, class durable.Class, do durable.Action) durable.Event {
	return durable.Event{
		Kind: durable.EventFinish, Intent: durable.Intent{ID: r.ID}, Worker: r.Worker, Generation: r.Generation,
		Terms: &durable.Terms{KeyTTL: time.Hour, CanQuery: true}, Outcome: durable.Outcome{Class: class, Code: strings.Repeat("code", 100), Result: make([]byte, 9000), Err: errLong},
		Decision: durable.Decision{Action: do},
	}
}

// apply is Apply. All events must succeed.
func apply(ctx context.Context, s durable.Store, events ...durable.Event) ([]durable.Result, error) {
	results, err := s.Apply(ctx, events)
	for i := range results {
		if results[i].Err != nil {
			return nil, fmt.Errorf("%v: %w", events[i].Kind, results[i].Err)
		}
	}
	return results, err
}

// plan is what SQLite means to do.
func plan(t *testing.T, s *Store, query string, args ...any) (lines []string) {
	t.Helper()
	rows, err := s.DB().Query("EXPLAIN QUERY PLAN "+fill(query), inMicros(args)...)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		lines = append(lines, detail)
	}
	require.NoError(t, rows.Err())
	return lines
}

// TestPlans: what is found is found by an index, and what is in order is not sorted.
// What is counted, or held, is gone through in an index that has nothing else.
func TestPlans(t *testing.T) {
	s := openInternal(t)
	queries := map[string]string{"sweep 1": sweepAttempts, "sweep 2": sweepLetters, "sweep 3": sweepIntents}
	for i, text := range prepared() {
		queries[fmt.Sprint("statement ", i)] = text
	}
	open, _ := sqlquery.DeadLetters(&durable.Filter{}, &durable.DeadLetter{}, 1)
	all, _ := sqlquery.DeadLetters(&durable.Filter{IncludeResolved: true}, &durable.DeadLetter{}, 1)
	queries["open letters"], queries["all letters"] = open, all
	fine := regexp.MustCompile(`^SCAN (CONSTANT ROW|c|s|g|w|durable_worker|h.*|durable_job( USING (COVERING )?INDEX durable_job_open)?|.* USING (COVERING )?INDEX durable_intent_(due|later|held|listed|over)|` +
		`l USING INDEX durable_letter_(all|open))$`)
	for name, query := range queries {
		t.Run(name, func(t *testing.T) {
			for _, line := range plan(t, s, query, make([]any, 50)...) {
				if strings.HasPrefix(line, "SCAN") {
					assert.Regexp(t, fine, line)
				}
				if !strings.Contains(query, "SELECT -2") && !strings.HasSuffix(name, "letters") { // intents that died in the same millisecond are sorted
					assert.NotContains(t, line, "TEMP B-TREE")
				}
			}
		})
	}
	assert.Contains(t, plan(t, s, open, make([]any, 7)...), "SEARCH l USING INDEX durable_letter_open (dead_at>?)")
	assert.Contains(t, plan(t, s, all, make([]any, 7)...), "SEARCH l USING INDEX durable_letter_all (dead_at>?)")
	one, args := sqlquery.DeadLetters(&durable.Filter{Scope: "a", Operation: "b", Key: "c", IncludeResolved: true}, nil, 1)
	assert.Contains(t, plan(t, s, one, args...), "SEARCH l USING PRIMARY KEY (intent=?)")
	// D23: a page of intents reads a part of an index for each state, and sorts those of one
	// millisecond.
	page := durable.Filter{States: []durable.State{durable.StateUnknown, durable.StateDead}, Scope: "a"}
	text, args := sqlquery.PageOfIntents(&page, &durable.Record{}, 1)
	lines := plan(t, s, text, args...)
	assert.Contains(t, lines, "SEARCH i USING INDEX durable_intent_listed (state=? AND created>?)")
	assert.NotRegexp(t, "SCAN i|ORDER BY i", strings.Join(lines, "\n"))
	page.Operation, page.Key = "b", "c"
	text, args = sqlquery.PageOfIntents(&page, nil, 1)
	assert.Contains(t, plan(t, s, text, args...), "SEARCH i USING INDEX sqlite_autoindex_durable_intent_1 (scope=? AND operation=? AND key=?)")
}

// TestDurability: all that a verb writes but Sweep is flushed, and without that
// connection nothing is written.
func TestDurability(t *testing.T) {
	s := openInternal(t)
	const full = 2
	assert.Equal(t, full, pragma(t, s.db.kit.Write, "synchronous"))
	require.NoError(t, errOf(apply(t.Context(), s, enqueue("a", "1"))))
	require.NoError(t, errOf(s.Claim(t.Context(), claimOf("w"))))
	require.NoError(t, errOf(s.Heartbeat(t.Context(), "w", 0)))
	require.NoError(t, s.db.kit.Write.Close())
	require.ErrorContains(t, errOf(s.Apply(t.Context(), []durable.Event{enqueue("a", "2")})), "closed")
	require.ErrorContains(t, errOf(s.Claim(t.Context(), claimOf("w"))), "closed")
	require.ErrorContains(t, errOf(s.Heartbeat(t.Context(), "w", time.Hour)), "closed")
	require.ErrorContains(t, errOf(s.Reap(t.Context(), 10)), "closed")
}

// TestIdleWritesNothing: reads write nothing. A claim only extends the worker's lease.
func TestIdleWritesNothing(t *testing.T) {
	s := openInternal(t)
	require.NoError(t, errOf(apply(t.Context(), s, enqueue("a", "1"))))
	conn, err := s.DB().Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	version := func() (n int) { // changes when anybody else commits
		require.NoError(t, conn.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&n))
		return n
	}
	before := version()
	for range 3 {
		require.NoError(t, errOf(s.Reap(t.Context(), 10)))
		require.NoError(t, errOf(s.Sweep(t.Context(), 0, 10)))
		require.NoError(t, errOf(s.Stats(t.Context())))
		results, err := s.Apply(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, results)
	}
	assert.Equal(t, before, version())
}

// TestVersions is a rolling deploy: a version comes that has more, while this one is at
// work, which works on, and the suite runs with both at once.
func TestVersions(t *testing.T) {
	later := schema()
	later.Scripts = append(later.Scripts, `ALTER TABLE durable_intent ADD COLUMN note TEXT NOT NULL DEFAULT '';
		CREATE INDEX durable_intent_worker ON durable_intent (worker);
		INSERT INTO durable_schema (version, oldest, applied) VALUES (1000, 1, 0);`)
	newer := func(t *testing.T, path string) *Store {
		t.Helper()
		kit, err := sqlitekit.Open(t.Context(), path, sqlitekit.Settings{Schema: later})
		require.NoError(t, err)
		s, err := newStore(t.Context(), kit)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	storetest.Suite{
		Open: func(t *testing.T) durable.Store {
			t.Cleanup(func() { movedClock.Store(0) })
			return openInternal(t)
		},
		MoveClock: func(_ *testing.T, _ durable.Store, by time.Duration) { movedClock.Add(int64(by)) },
		Again: func(t *testing.T, first durable.Store) durable.Store {
			return newer(t, first.(*Store).db.kit.File.Path)
		},
		Rows: 20,
	}.Run(t)
}

// TestSchema: what another tool makes of Schema is what Open makes, and Open leaves it.
func TestSchema(t *testing.T) {
	text, err := Schema(0)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tool.db")
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, errOf(db.Exec(text)))
	version := pragma(t, db, "schema_version")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, version, pragma(t, db, "schema_version"), "nothing was made")
	require.NoError(t, s.Close())
	require.NoError(t, errOf(db.Exec("INSERT INTO durable_schema VALUES (1000, 1000, 0)")))
	require.ErrorIs(t, errOf(Open(t.Context(), path)), ErrSchema)
}

// checkBooks looks whether the tables agree with one another.
func checkBooks(t *testing.T, s *Store) {
	t.Helper()
	for what, query := range map[string]string{
		"an attempt of nothing":        `SELECT count(*) FROM durable_attempt WHERE intent NOT IN (SELECT id FROM durable_intent)`,
		"a letter of nothing":          `SELECT count(*) FROM durable_letter WHERE intent NOT IN (SELECT id FROM durable_intent)`,
		"held, and not journalled":     `SELECT count(*) FROM durable_intent WHERE state IN (2, 3) AND (a_n <> generation OR a_finished IS NOT NULL)`,
		"held without a worker":        `SELECT count(*) FROM durable_intent WHERE (state IN (2, 3)) <> (worker <> '')`,
		"an attempt that never ended":  `SELECT count(*) FROM durable_intent WHERE a_n > 0 AND a_finished IS NULL AND (a_n <> generation OR state NOT IN (2, 3))`,
		"never ended, and not last":    `SELECT count(*) FROM durable_attempt WHERE finished IS NULL`,
		"an attempt in two places":     `SELECT count(*) FROM durable_attempt a JOIN durable_intent i ON i.id = intent WHERE n >= a_n`,
		"dead without a letter":        `SELECT count(*) FROM durable_intent i WHERE (state = 6) <> (SELECT count(*) = 1 FROM durable_letter WHERE intent = i.id AND redriven_at IS NULL)`,
		"another letter":               `SELECT count(*) FROM durable_intent i WHERE letter <> coalesce((SELECT n FROM durable_letter WHERE intent = i.id AND redriven_at IS NULL), 0)`,
		"done twice":                   `SELECT count(*) FROM durable_intent i WHERE (a_class = 1) + (SELECT count(*) FROM durable_attempt WHERE intent = i.id AND class = 1) > 1`,
		"in two indexes, or none":      `SELECT count(*) FROM durable_intent WHERE (state IN (0, 1, 4)) + (state IN (2, 3)) + (state = 6) + (state IN (5, 7)) <> 1`,
		"later, and cannot be claimed": `SELECT count(*) FROM durable_intent WHERE later AND state NOT IN (0, 1, 4)`,
	} {
		var n int
		require.NoError(t, s.DB().QueryRow(query).Scan(&n), what)
		assert.Zero(t, n, what)
	}
	var integrity string
	require.NoError(t, s.DB().QueryRow("PRAGMA integrity_check").Scan(&integrity))
	assert.Equal(t, "ok", integrity)
}

// TestScheduledIntents_areKeptApart: claims do not read scheduled intents until they are due.
// Stats counts them.
func TestScheduledIntents_areKeptApart(t *testing.T) {
	s := openInternal(t)
	var events []durable.Event
	for _, key := range []string{"past", "soon", "later"} {
		e := enqueue("a", key)
		e.Intent.NotBefore = time.Now().Add(2 * time.Hour)
		events = append(events, e)
	}
	require.NoError(t, errOf(apply(t.Context(), s, append(events, enqueue("a", "now"))...)))
	apart := func() (keys string) {
		require.NoError(t, s.DB().QueryRow("SELECT coalesce(group_concat(key, ' ' ORDER BY key), '') FROM durable_intent WHERE later = 1").Scan(&keys))
		return keys
	}
	assert.Equal(t, "later past soon", apart())
	for key, due := range map[string]time.Duration{"past": -time.Hour, "soon": -time.Minute} {
		require.NoError(t, errOf(s.DB().Exec("UPDATE durable_intent SET next_at = ? WHERE key = ?", time.Now().Add(due).UnixMicro(), key)))
	}
	stats, err := s.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[durable.State]int{durable.StatePending: 4}, stats.States)
	assert.Equal(t, 3, stats.Due)
	assert.WithinDuration(t, time.Now().Add(-time.Hour), stats.Oldest, time.Minute)
	claimed, err := s.Claim(t.Context(), claimOf("w"))
	require.NoError(t, err)
	require.Len(t, claimed.Changes, 3)
	assert.Equal(t, "past", claimed.Changes[0].Record.ID.Key)
	assert.Equal(t, "later", apart())
	checkBooks(t, s)
}

// TestSweep_deletesAll: Sweep deletes all rows of an intent, and Reap the rows of dead workers.
func TestSweep_deletesAll(t *testing.T) {
	s := openInternal(t)
	for i := range 3 {
		require.NoError(t, life(t.Context(), s, fmt.Sprint("worker ", i), func(string) {}))
	}
	time.Sleep(5 * time.Millisecond)
	n, err := s.Sweep(t.Context(), 0, 5)
	require.NoError(t, err)
	assert.Equal(t, 5, n)
	checkBooks(t, s)
	n, err = s.Sweep(t.Context(), 0, 10)
	require.NoError(t, err)
	assert.Equal(t, 7, n)
	for _, table := range []string{"intent", "attempt", "letter", "worker"} {
		require.NoError(t, s.DB().QueryRow("SELECT count(*) FROM durable_"+table).Scan(&n))
		assert.Zero(t, n, table)
	}
}

// life takes four intents through all there is, and calls said after each verb.
func life(ctx context.Context, s *Store, name string, said func(what string)) error {
	var held []durable.Change
	second, third, fourth := enqueue(name, "2"), enqueue(name, "3"), enqueue(name, "4")
	mended := fourth
	mended.Intent.Payload = []byte("mended")
	of := func(events ...durable.Event) func() error {
		return func() error { _, err := apply(ctx, s, events...); return err }
	}
	claim := func(n int) func() error {
		return func() error {
			claimed, err := s.Claim(ctx, claimOf(name))
			if held = claimed.Changes; err == nil && len(held) != n {
				err = fmt.Errorf("%d were claimed, want %d", len(held), n)
			}
			return err
		}
	}
	beat := func(lease time.Duration) func() error {
		return func() error { _, err := s.Heartbeat(ctx, name, lease); return err }
	}
	reap := func(n int) func() error {
		return func() error {
			changes, err := s.Reap(ctx, 10)
			if err == nil && len(changes) != n {
				err = fmt.Errorf("%d were reaped, want %d", len(changes), n)
			}
			return err
		}
	}
	decided := func(kind durable.EventKind, e durable.Event, outcome durable.Outcome) durable.Event {
		return durable.Event{Kind: kind, Intent: durable.Intent{ID: e.ID()}, Outcome: outcome, By: "ann"}
	}
	done := durable.Outcome{Class: durable.ClassSucceeded, Result: make([]byte, 9000)}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"enqueued", of(enqueue(name, "1"), second, third)},
		{"claimed", claim(3)},
		{"done, dead and unknown", func() error {
			return of(finish(&held[0].Record, durable.ClassSucceeded, durable.Retry), finish(&held[1].Record, durable.ClassDeclined, durable.Bury),
				finish(&held[2].Record, durable.ClassUnknown, durable.Retry))()
		}},
		{"resolved", of(decided(durable.EventResolve, second, durable.Outcome{Class: durable.ClassDeclined, Err: errLong}))},
		{"redriven", of(decided(durable.EventRedrive, second, durable.Outcome{}))},
		{"claimed again", claim(2)},
		{"left", beat(0)},
		{"reaped", reap(2)},
		{"resolved as done", of(decided(durable.EventResolve, third, done))},
		{"both resolved as done", of(decided(durable.EventResolve, second, done))},
		{"enqueued the fourth", of(fourth)},
		{"claimed the fourth", claim(1)},
		{"refused", func() error { return of(finish(&held[0].Record, durable.ClassDeclined, durable.Bury))() }},
		{"revised", of(mended)},
		{"beaten", beat(time.Hour)},
		{"canceled", of(decided(durable.EventCancel, fourth, durable.Outcome{}))},
		{"left again", beat(0)},
		{"reaped again", reap(0)},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		said(step.what)
	}
	return nil
}

// TestDiskFull meets a full disk at each page that a life wants more. What failed has not
// happened, and when there is room again, all goes on.
func TestDiskFull(t *testing.T) {
	s := openInternal(t)
	failed := map[string]bool{}
	for more := 0; ; more++ {
		allow(t, more, s.db.kit.Write)
		last := ""
		err := life(t.Context(), s, fmt.Sprint("worker ", more), func(what string) { last = what })
		allow(t, -1, s.db.kit.Write)
		checkBooks(t, s)
		if err == nil {
			break
		}
		var e *sqlite.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, sqlite3.SQLITE_FULL, e.Code()&0xff, "%v", err)
		failed[last] = true
		t.Logf("%d pages: full after %q", more, last)
		bury(t, s)
	}
	assert.Greater(t, len(failed), 2, "the disk was full at different verbs")
	var done, all int
	require.NoError(t, s.DB().QueryRow("SELECT count(*) FILTER (WHERE state IN (5, 7)), count(*) FROM durable_intent").Scan(&done, &all))
	assert.Equal(t, all, done)
}

// allow lets the database have so many more pages; negative: as many as it likes.
func allow(t *testing.T, more int, db *sql.DB) {
	t.Helper()
	limit := 1 << 30
	if more >= 0 {
		limit = pragma(t, db, "page_count") + more
	}
	pragma(t, db, fmt.Sprintf("max_page_count = %d", limit))
}

// bury ends all that a life has left.
func bury(t *testing.T, s *Store) {
	t.Helper()
	require.NoError(t, errOf(s.DB().Exec("UPDATE durable_worker SET expires_at = 0")))
	require.NoError(t, errOf(s.Reap(t.Context(), 100)))
	letters, err := s.DeadLetters(t.Context(), durable.Filter{}, nil, 100)
	require.NoError(t, err)
	for i := range letters {
		require.NoError(t, errOf(apply(t.Context(), s, durable.Event{Kind: durable.EventRedrive, Intent: durable.Intent{ID: letters[i].ID}, By: "ann"})))
	}
	claimed, err := s.Claim(t.Context(), claimOf("last"))
	require.NoError(t, err)
	for i := range claimed.Changes {
		require.NoError(t, errOf(apply(t.Context(), s, finish(&claimed.Changes[i].Record, durable.ClassSucceeded, durable.Retry))))
	}
	checkBooks(t, s)
}

// mortalEnv says, in the environment, that the test binary is another process, which lives
// a life and dies at the n-th thing that is written, with which database: "n path".
const mortalEnv = "SQLITESTORE_CHILD"

func TestMain(m *testing.M) {
	registerClock()
	role := os.Getenv(mortalEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := mortal(context.Background(), role); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// mortal says what it has done.
func mortal(ctx context.Context, role string) error {
	n, path, _ := strings.Cut(role, " ")
	left, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	s, err := Open(ctx, path)
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

// TestCrashBetweenStatements kills a process before each row that it writes and before
// each commit. What it has said is there, what it was about to do is there wholly or not
// at all, and everything comes to its end.
func TestCrashBetweenStatements(t *testing.T) {
	for n := 1; ; n++ {
		path := filepath.Join(t.TempDir(), "test.db")
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprint(mortalEnv, "=", n, " ", path))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		require.NotNil(t, cmd.ProcessState, "%v", err)
		said := slices.Collect(strings.Lines(string(out)))
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
		assert.Equal(t, there, over.States[durable.StateDone]+over.States[durable.StateCanceled], "killed at %d", n)
		require.NoError(t, s.Close())
		if len(said) > 0 && said[len(said)-1] == "survived\n" {
			assert.Greater(t, n, 30, "it was killed that often")
			return
		}
		require.False(t, t.Failed())
	}
}

// afterLife is what there is after so many verbs of a life.
var afterLife = []map[durable.State]int{
	{},
	{durable.StatePending: 3},
	{durable.StateSending: 3},
	{durable.StateDone: 1, durable.StateDead: 1, durable.StateUnknown: 1},
	{durable.StateDone: 1, durable.StateDead: 1, durable.StateUnknown: 1},    // resolved as refused
	{durable.StateDone: 1, durable.StateWaiting: 1, durable.StateUnknown: 1}, // redriven
	{durable.StateDone: 1, durable.StateSending: 2},
	{durable.StateDone: 1, durable.StateUnknown: 2}, // left: no worker sends them any more
	{durable.StateDone: 1, durable.StateUnknown: 2}, // reaped
	{durable.StateDone: 2, durable.StateUnknown: 1},
	{durable.StateDone: 3},
	{durable.StateDone: 3, durable.StatePending: 1},
	{durable.StateDone: 3, durable.StateSending: 1},
	{durable.StateDone: 3, durable.StateDead: 1},
	{durable.StateDone: 3, durable.StateWaiting: 1}, // revised
	{durable.StateDone: 3, durable.StateWaiting: 1}, // beaten
	{durable.StateDone: 3, durable.StateCanceled: 1},
	{durable.StateDone: 3, durable.StateCanceled: 1}, // left again
	{durable.StateDone: 3, durable.StateCanceled: 1}, // reaped again
	{durable.StateDone: 3, durable.StateCanceled: 1}, // survived
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }

// TestUpgrade: Open takes over a file of version 1 with its intents. A program for version 1 goes on with it.
func TestUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	old := schema()
	old.Scripts = old.Scripts[:1]
	kit, err := sqlitekit.Open(t.Context(), path, sqlitekit.Settings{Schema: old})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	insert := func(key string, state durable.State, code string) durable.Event {
		e := enqueue("a", key)
		now := time.Now().UnixMicro()
		_, err := kit.Work.Exec(`INSERT INTO durable_intent (scope, operation, key, gateway, fingerprint, state, epoch, generation, worker, next_at,
				later, attempts, tries, doubt, ask, class, code, reference, reason, letter, first_at, last_at, since, batch, row, created, updated, payload)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, 1, '', ?8, 0, 1, 1, ?6 = 4, 0, 0, ?7, '', '', 0, ?8, ?8, ?8, '', 0, ?8, ?8, ?9)`,
			e.Intent.ID.Scope, e.Intent.ID.Operation, e.Intent.ID.Key, e.Intent.Gateway, string(durable.FingerprintOf(&e.Intent)), int(state), code, now, e.Intent.Payload)
		require.NoError(t, err)
		return e
	}
	before := insert("before", durable.StateUnknown, "lease_expired 7")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	insert("by an old program", durable.StatePending, "")
	again, err := sqlitekit.Open(t.Context(), path, sqlitekit.Settings{Schema: old})
	require.NoError(t, err, "an old program accepts the tables")
	require.NoError(t, again.Close())

	claimed, err := s.Claim(t.Context(), claimOf("w"))
	require.NoError(t, err)
	require.Len(t, claimed.Changes, 2)
	r, err := s.Find(t.Context(), before.Intent.ID)
	require.NoError(t, err)
	assert.Zero(t, r.LostLeases, "counts begin anew")
	assert.Equal(t, durable.StateSending, r.State)
}

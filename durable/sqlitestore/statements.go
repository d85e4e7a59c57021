package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// The clock is SQLite's, which knows milliseconds. round, because the seconds are a
// float, and 0.123 may be a little less.
const now = ` (CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000) `

// The numbers of durable.State in the statements below: 0, 1 and 4 are Claimable, 2 and
// 3 Held, 5 and 7 Final. They never change. The statements use them only to find rows:
// Decide says what is permitted.
const (
	claimable = ` state IN (0, 1, 4) AND later = 0 `
	later     = ` state IN (0, 1, 4) AND later = 1 `
	held      = ` state IN (2, 3) `
	final     = ` state IN (5, 7) `

	// columns are those of a record without payload and result, as scanRow reads them.
	columns = ` i.id, i.scope, i.operation, i.key, i.gateway, i.fingerprint, i.state, i.epoch, i.generation, i.worker,
		i.next_at, i.deadline, i.attempts, i.tries, i.doubt, i.ask, i.class, i.code, i.reference, i.reason, i.letter,
		i.first_at, i.last_at, i.taken_at, i.since, i.batch, i.row, i.created, i.updated, i.declines `

	// bareColumns are columns without payload and result.
	bareColumns = columns + `, x'', x''`

	// lastAttempt are the columns of an intent's last attempt.
	lastAttempt = ` a_n, a_kind, a_epoch, a_key, a_worker, a_sent, a_finished, a_class, a_code, a_status, a_reference, a_error `

	// inEffect are the holds that have not ended at ?1.
	inEffect = ` released_by = '' AND (until IS NULL OR until > ?1) `

	theID = ` scope = ?1 AND operation = ?2 AND key = ?3 `

	// inTurn is the order within a queue: that of the index. Of intents that are due at the
	// same time, the oldest is first.
	inTurn = ` ORDER BY next_at, state, id `

	// firstOf is the intent that is due longest in the scope of s; ?2 is the time, ?3 the gateway.
	firstOf = ` (SELECT id FROM durable_intent WHERE` + claimable + `AND gateway = ?3 AND scope = s.scope AND next_at <= ?2` + inTurn + `LIMIT 1) `

	// nextScope is the next scope after that of s with claimable intents, due or not. It is
	// a seek in the index, for any number of rows.
	nextScope = ` SELECT (SELECT min(scope) FROM durable_intent WHERE` + claimable + `AND gateway = ?3 AND scope > s.scope)
		FROM s WHERE s.scope IS NOT NULL `

	firsts = ` SELECT ` + columns + `, i.payload, x'' FROM s CROSS JOIN durable_intent i ON i.id =` + firstOf
)

// statement is the number of a prepared statement.
type statement int

const (
	clock statement = iota
	find
	load
	insert
	update
	take
	settle
	keepAttempt
	beginAttempt
	openLetter
	closeLetter
	eraseAttempts
	eraseLetters
	beat
	promote
	heldGateways
	setHold
	release
	readHolds
	setWait
	forgetWaits
	releaseWaits
	readWaits
	dueQueries
	dueGateways
	dueAfter
	dueUntil
	dueMore
	lost
	findLost
	forget
	attempts
	findOver
	stats
	sameJob
	addJob
	newestJobs
	findJob
	oneJob
	takeJob
	updateJob

	statements // the number of statements
)

// text returns the SQL of a statement.
func (s statement) text() string {
	return [statements]string{
		clock: `SELECT` + now,

		// find reads all columns, load those that Decide needs.
		find: `SELECT` + columns + `, i.payload, i.result FROM durable_intent i WHERE` + theID,
		load: `SELECT` + bareColumns + ` FROM durable_intent i WHERE` + theID,

		insert: `INSERT INTO durable_intent (scope, operation, key, payload, gateway, fingerprint, state, epoch, generation,
				worker, next_at, later, deadline, attempts, tries, doubt, ask, class, code, reference, reason, letter,
				first_at, last_at, taken_at, since, batch, row, created, updated, declines)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
				?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31)
			ON CONFLICT DO NOTHING`,

		// ?2 and ?3 are NULL if payload and result are unchanged.
		update: `UPDATE durable_intent
			SET payload = coalesce(?2, payload), result = coalesce(?3, result), gateway = ?4, fingerprint = ?5, state = ?6,
				epoch = ?7, generation = ?8, worker = ?9, next_at = ?10, later = ?11, deadline = ?12, attempts = ?13,
				tries = ?14, doubt = ?15, ask = ?16, class = ?17, code = ?18, reference = ?19, reason = ?20, letter = ?21,
				first_at = ?22, last_at = ?23, taken_at = ?24, since = ?25, batch = ?26, row = ?27, created = ?28, updated = ?29,
				declines = ?30
			WHERE id = ?1`,

		// take and settle update an intent when an attempt begins and when it ends.
		take: `UPDATE durable_intent
			SET state = ?2, epoch = ?3, generation = ?4, worker = ?5, later = 0, attempts = ?6, tries = ?7, first_at = ?8,
				taken_at = ?9, updated = ?9, a_n = ?4, a_kind = ?10, a_epoch = ?3, a_key = ?11, a_worker = ?5, a_sent = ?9,
				a_finished = NULL, a_class = 0, a_code = '', a_status = 0, a_reference = '', a_error = '', since = ?12
			WHERE id = ?1`,
		settle: `UPDATE durable_intent
			SET state = ?3, epoch = ?4, worker = '', next_at = ?5, later = ?6, attempts = ?7, doubt = ?8, ask = ?9, class = ?10,
				code = ?11, reference = ?12, reason = ?13, letter = ?14, first_at = ?15, last_at = ?16, updated = ?17,
				result = coalesce(?18, result), a_finished = ?17, a_class = ?19, a_code = ?20, a_status = ?21,
				a_reference = ?22, a_error = ?23, declines = ?24, tries = ?25
			WHERE id = ?1 AND a_n = ?2`,

		keepAttempt: `INSERT INTO durable_attempt (intent, n, kind, epoch, key, worker, sent_at, finished_at, class, code,
				status, reference, error)
			SELECT id,` + lastAttempt + `FROM durable_intent WHERE id = ?1 AND a_n > 0`,
		beginAttempt: `UPDATE durable_intent SET a_n = ?2, a_kind = ?3, a_epoch = ?4, a_key = ?5, a_worker = ?6, a_sent = ?7,
				a_finished = ?8, a_class = ?9, a_code = ?10, a_status = ?11, a_reference = ?12, a_error = ?13
			WHERE id = ?1`,

		openLetter: `INSERT INTO durable_letter (intent, n, gateway, batch, row, reason, class, code, doubt, attempts, dead_at,
				redriven_at, "by", note)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, NULL, '', '')`,
		closeLetter: `UPDATE durable_letter SET redriven_at = ?3, "by" = ?4, note = ?5 WHERE intent = ?1 AND n = ?2`,

		// The texts that an erasure removes. Its own attempt replaces the texts of the last
		// one. 'erased' is driver.NoteErased.
		eraseAttempts: `UPDATE durable_attempt SET error = '' WHERE intent = ?1 AND error <> ''`,
		eraseLetters:  `UPDATE durable_letter SET note = '' WHERE intent = ?1 AND note NOT IN ('', 'erased')`,

		beat: `INSERT INTO durable_worker (id, expires_at) VALUES (?1, ?2)
			ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at`,

		heldGateways: `SELECT gateway FROM durable_hold WHERE` + inEffect,
		setHold: `INSERT INTO durable_hold (gateway, since, until, "by", note, released_by) VALUES (?2, ?1, ?3, ?4, ?5, '')
			ON CONFLICT (gateway) DO UPDATE SET until = ?3, "by" = ?4, note = ?5, released_by = '',
				since = CASE WHEN` + inEffect + `THEN since ELSE ?1 END`,
		release:   `UPDATE durable_hold SET released_by = ?3 WHERE gateway = ?2 AND` + inEffect,
		readHolds: `SELECT gateway, since, until, "by", note FROM durable_hold WHERE` + strings.Replace(inEffect, "?1", now, 1) + `ORDER BY gateway`,

		// The provider's holds: the one that ends later stays. ?1 is the time.
		setWait: `INSERT INTO durable_provider_hold (gateway, scope, since, until, note) VALUES (?2, ?3, ?1, ?4, ?5)
			ON CONFLICT (gateway, scope) DO UPDATE SET since = CASE WHEN until > ?1 THEN since ELSE ?1 END, until = ?4, note = ?5
			WHERE until < ?4`,
		forgetWaits:  `DELETE FROM durable_provider_hold WHERE until < ?1`,
		releaseWaits: `DELETE FROM durable_provider_hold WHERE gateway = ?2 AND until > ?1`,
		readWaits:    `SELECT gateway, scope, since, until, note FROM durable_provider_hold WHERE until > ?1 ORDER BY gateway, scope`,
		dueQueries: `SELECT` + columns + `, i.payload, x'' FROM durable_intent i
			WHERE state = 4 AND ask = 1 AND later = 0 AND gateway = ?1 AND next_at <= ?2 ORDER BY next_at LIMIT ?3`,

		promote: `UPDATE durable_intent SET later = 0 WHERE id IN (
				SELECT id FROM durable_intent WHERE` + later + `AND next_at <= ?1 ORDER BY next_at, state, id LIMIT ?2)`,

		// The gateways with claimable intents. Each is a seek in the index.
		dueGateways: `WITH RECURSIVE g(gateway) AS (
				SELECT min(gateway) FROM durable_intent WHERE` + claimable + `
				UNION ALL SELECT (SELECT min(gateway) FROM durable_intent WHERE` + claimable + `AND gateway > g.gateway)
				FROM g WHERE g.gateway IS NOT NULL)
			SELECT gateway FROM g WHERE gateway IS NOT NULL`,

		// The oldest due intent of a gateway in each scope after ?1, and then in the other scopes.
		dueAfter: `WITH RECURSIVE s(scope) AS (
				SELECT min(scope) FROM durable_intent WHERE` + claimable + `AND gateway = ?3 AND scope > ?1 UNION ALL` + nextScope + `)` + firsts,
		dueUntil: `WITH RECURSIVE s(scope) AS (
				SELECT min(scope) FROM durable_intent WHERE` + claimable + `AND gateway = ?3 UNION ALL` + nextScope + `AND s.scope < ?1)` + firsts +
			`WHERE s.scope <= ?1`,

		// The other due intents of one scope.
		dueMore: `SELECT` + columns + `, i.payload, x'' FROM durable_intent i
			WHERE` + claimable + `AND gateway = ?5 AND scope = ?1 AND next_at <= ?2` + inTurn + `LIMIT ?3 OFFSET ?4`,

		// Intents of dead workers, and of workers without a row.
		lost: `SELECT` + bareColumns + ` FROM durable_intent i WHERE` + held + `AND NOT EXISTS (
				SELECT 1 FROM durable_worker WHERE id = worker AND expires_at > ?1) LIMIT ?2`,
		findLost: `SELECT EXISTS (SELECT 1 FROM durable_worker WHERE expires_at <=` + now + `)
			OR EXISTS (SELECT 1 FROM durable_intent i WHERE` + held + `AND NOT EXISTS (
				SELECT 1 FROM durable_worker WHERE id = worker AND expires_at >` + now + `))`,
		forget: `DELETE FROM durable_worker WHERE expires_at <= ?1`,

		// The last attempt is the last row. A row without a number means that the intent exists.
		attempts: `SELECT n, kind, epoch, key, worker, sent_at, finished_at, class, code, status, reference, error
				FROM durable_attempt WHERE intent = (SELECT id FROM durable_intent WHERE` + theID + `)
			UNION ALL SELECT nullif(a_n, 0), a_kind, a_epoch, a_key, a_worker, a_sent, a_finished, a_class, a_code, a_status,
				a_reference, a_error FROM durable_intent WHERE` + theID,

		findOver: `SELECT EXISTS (SELECT 1 FROM durable_intent WHERE` + final + `AND updated <` + now + `- ?1)`,

		stats: `SELECT state, count(*), coalesce(sum(next_at <=` + now + `), 0), min(next_at)
				FROM durable_intent INDEXED BY durable_intent_due WHERE` + claimable + `GROUP BY state
			UNION ALL SELECT state, count(*), coalesce(sum(next_at <=` + now + `), 0), min(next_at)
				FROM durable_intent INDEXED BY durable_intent_later WHERE` + later + `GROUP BY state
			UNION ALL SELECT CASE WHEN EXISTS (SELECT 1 FROM durable_worker WHERE id = worker AND expires_at >` + now + `)
				THEN state ELSE 4 END, count(*), 0, NULL
				FROM durable_intent INDEXED BY durable_intent_held WHERE` + held + `GROUP BY 1
			UNION ALL SELECT state, count(*), 0, NULL
				FROM durable_intent INDEXED BY durable_intent_listed WHERE state = 6 AND state NOT IN (2, 3) GROUP BY state
			UNION ALL SELECT state, count(*), 0, NULL
				FROM durable_intent INDEXED BY durable_intent_over WHERE` + final + `GROUP BY state
			UNION ALL SELECT -2, count(*), 0, NULL
				FROM durable_intent INDEXED BY durable_intent_listed WHERE state = 6 AND state NOT IN (2, 3) AND doubt
			UNION ALL SELECT -1, count(*), 0,` + now + `FROM durable_worker WHERE expires_at >` + now,

		sameJob:    `SELECT id, job FROM durable_job WHERE open = 1 AND filter = ?1`,
		addJob:     `INSERT INTO durable_job (open, filter, job) VALUES (1, ?1, ?2) RETURNING id, job`,
		newestJobs: `SELECT id, job FROM durable_job ORDER BY id DESC LIMIT ?1`,
		findJob:    `SELECT EXISTS (SELECT 1 FROM durable_job WHERE open = 1)`,
		oneJob:     `SELECT id, job FROM durable_job WHERE id = ?1`,
		takeJob:    `SELECT id, job FROM durable_job WHERE open = 1 ORDER BY id LIMIT 1`,
		updateJob:  `UPDATE durable_job SET open = ?2, job = ?3 WHERE id = ?1`,
	}[s]
}

// The statements of Sweep, in their order. All find the same intents: older than ?1, at most ?2.
const (
	whatIsOver = ` IN (SELECT id FROM durable_intent WHERE` + final + `AND updated < ?1
		ORDER BY updated, state, id LIMIT ?2)`

	sweepAttempts = `DELETE FROM durable_attempt WHERE intent` + whatIsOver
	sweepLetters  = `DELETE FROM durable_letter WHERE intent` + whatIsOver
	sweepIntents  = `DELETE FROM durable_intent WHERE id` + whatIsOver
)

// lockSQL takes the write lock and does nothing else.
const lockSQL = `UPDATE durable_intent SET state = state WHERE false`

// preparedStatements are those of a pool. They are closed with it.
type preparedStatements [statements]*sql.Stmt

func (p *preparedStatements) prepare(ctx context.Context, db *sql.DB) error {
	for s := range p {
		if p[s] != nil {
			continue // the last one has met a lock
		}
		prepared, err := db.PrepareContext(ctx, statement(s).text()) //nolint:sqlclosecheck // with the pool
		if err != nil {
			return fmt.Errorf("sqlitestore: statement %d: %w", s, err)
		}
		p[s] = prepared
	}
	return nil
}

// transaction is an open transaction. It prepares each statement once.
type transaction struct {
	tx       *sql.Tx
	prepared *preparedStatements // nil: a transaction of the caller, which uses the texts
	ready    [statements]sqlitekit.Statement
}

func (t *transaction) statement(s statement) sqlitekit.Statement {
	if t.ready[s] == nil {
		if t.prepared == nil {
			t.ready[s] = sqlitekit.In(t.tx, s.text())
		} else {
			t.ready[s] = t.tx.StmtContext(context.Background(), t.prepared[s])
		}
	}
	return t.ready[s]
}

func (t *transaction) exec(ctx context.Context, s statement, args ...any) error {
	_, err := t.statement(s).ExecContext(ctx, args...)
	return err
}

// errNoRow cannot happen.
var errNoRow = errors.New("sqlitestore: a row was deleted")

// must is exec of a statement that changes one row.
func (t *transaction) must(ctx context.Context, s statement, args ...any) error {
	n, err := sqlitekit.Affected(t.statement(s).ExecContext(ctx, args...))
	if err == nil && n != 1 {
		err = fmt.Errorf("%w (statement %d)", errNoRow, s)
	}
	return err
}

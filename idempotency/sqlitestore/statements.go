package sqlitestore

import (
	"context"
	"database/sql"
)

// The clock is SQLite's, in milliseconds, and stands still within a statement.
// round, because the seconds are a float, and 0.123 may be a little less.
const now = `CAST(round(unixepoch('subsec') * 1000) AS INTEGER)`

// The numbers of idempotency.Status in the statements below: 1 is InProgress, 3
// FailedRetryable, 6 Unknown. They never change.

const (
	theRecord = ` scope = ?1 AND operation = ?2 AND key = ?3 `

	// theLease: the record is still that execution's.
	theLease = theRecord + ` AND owner = ?4 AND generation = ?5 `

	// alive is the negation of Record.Expired, and expired that itself, in a form
	// that the index serves.
	alive   = ` (expires > ` + now + ` OR status = 6 OR (status = 1 AND lease_expires > ` + now + `)) `
	expired = ` (status <> 6 AND expires <= ` + now + ` AND (status <> 1 OR lease_expires <= ` + now + `)) `

	// asJudged: nothing has happened to the record since it was read. As its lease
	// and expiry are the same, and time does not go back, what was over is over.
	asJudged = theRecord + ` AND status = ?4 AND owner = ?5 AND generation = ?6 AND lease_expires = ?7 AND expires = ?8 `

	loadSQL = `SELECT fingerprint, status, owner, generation, started, updated, lease_expires, expires,
			code, reference, header, body, body IS NOT NULL, ` + now + `
		FROM idempotency_records WHERE` + theRecord

	insertSQL = `INSERT INTO idempotency_records
			(scope, operation, key, fingerprint, status, owner, generation, started, updated, lease_expires, expires)
		VALUES (?1, ?2, ?3, ?4, 1, ?5, 1, ` + now + `, ` + now + `, ` + now + ` + ?6, ` + now + ` + ?7)
		ON CONFLICT DO NOTHING
		RETURNING generation, started, updated, lease_expires, expires`

	takeSQL = `UPDATE idempotency_records
		SET fingerprint = ?9, status = 1, owner = ?10, generation = generation + 1,
			started = ` + now + `, updated = ` + now + `, lease_expires = ` + now + ` + ?11, expires = ` + now + ` + ?12,
			code = 0, reference = '', header = NULL, body = NULL
		WHERE` + asJudged + `
		RETURNING generation, started, updated, lease_expires, expires`

	abandonSQL = `UPDATE idempotency_records
		SET status = 6, owner = '', generation = generation + 1, updated = ` + now + `
		WHERE` + asJudged + `
		RETURNING generation, started, updated, lease_expires, expires`

	renewSQL = `UPDATE idempotency_records
		SET lease_expires = ` + now + ` + ?6, updated = ` + now + `
		WHERE` + theLease + `AND status = 1 AND` + alive

	// Unknown is settled once: it does not become Unknown again. Its time to live
	// begins anew.
	completeSQL = `UPDATE idempotency_records
		SET` + outcome + `expires = CASE WHEN ?11 > 0 THEN ` + now + ` + ?11
			WHEN status = 6 THEN ` + now + ` + (expires - started) ELSE expires END
		WHERE` + theLease + `AND (status = 1 OR (status = 6 AND ?6 <> 6)) AND` + alive

	outcome = ` status = ?6, code = ?7, reference = ?8, header = ?9, body = ?10, updated = ` + now + `, `

	// finishSQL ends an execution in its own transaction, which holds the record
	// whatever the clock says, and in which holdSQL has made it 6.
	finishSQL = `UPDATE idempotency_records
		SET` + outcome + `expires = CASE WHEN ?11 > 0 THEN ` + now + ` + ?11 ELSE expires END
		WHERE` + theLease + `AND status = 6`

	releaseSQL = `UPDATE idempotency_records SET status = 3, updated = ` + now + `
		WHERE` + theLease + `AND status IN (1, 6) AND` + alive

	// holdSQL takes the write lock and finds whether the lease is good, in one: as
	// the first statement of a transaction it begins an immediate one, whichever
	// way that was begun.
	//
	// Inside of the transaction the record is Unknown until it is finished. Nobody
	// else sees it, unless the work commits by itself: then that is what it is.
	holdSQL = `UPDATE idempotency_records SET status = 6
		WHERE` + theLease + `AND status = 1 AND` + alive

	// lockSQL takes the write lock and does nothing else.
	lockSQL = `UPDATE idempotency_records SET generation = generation WHERE false`

	sweepableSQL = `SELECT 1 FROM idempotency_records WHERE` + expired + `LIMIT 1`

	sweepSQL = `DELETE FROM idempotency_records WHERE id IN
		(SELECT id FROM idempotency_records WHERE` + expired + `ORDER BY expires LIMIT ?1)`
)

// statement is one of them, ready to run: a *sql.Stmt, or a text in somebody's
// transaction.
type statement interface {
	QueryContext(ctx context.Context, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
}

// statements are those of the verbs.
type statements struct {
	load, sweepable                                 statement
	insert, take, abandon, renew, complete, release statement
	sweep                                           statement
}

// makeStatements makes each one of its text.
func makeStatements(statementOf func(text string) (statement, error)) (*statements, error) {
	var s statements
	for _, each := range []struct {
		to   *statement
		text string
	}{
		{&s.load, loadSQL}, {&s.sweepable, sweepableSQL},
		{&s.insert, insertSQL}, {&s.take, takeSQL}, {&s.abandon, abandonSQL}, {&s.renew, renewSQL},
		{&s.complete, completeSQL}, {&s.release, releaseSQL}, {&s.sweep, sweepSQL},
	} {
		var err error
		if *each.to, err = statementOf(each.text); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// prepare makes prepared statements of a pool, which outlive its connections.
func prepare(ctx context.Context, db *sql.DB) (*statements, error) {
	return makeStatements(func(text string) (statement, error) { return db.PrepareContext(ctx, text) })
}

// within makes statements that run in tx. They are not prepared: that would last
// no longer than tx.
func within(tx *sql.Tx) *statements {
	s, _ := makeStatements(func(text string) (statement, error) { return txStatement{tx, text}, nil }) // never fails
	return s
}

type txStatement struct {
	tx   *sql.Tx
	text string
}

func (s txStatement) QueryContext(ctx context.Context, args ...any) (*sql.Rows, error) {
	return s.tx.QueryContext(ctx, s.text, args...)
}

func (s txStatement) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	return s.tx.ExecContext(ctx, s.text, args...)
}

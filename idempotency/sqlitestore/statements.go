package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// The clock is SQLite's, in milliseconds, and stands still within a statement.
// round, because the seconds are a float, and 0.123 may be a little less.
const now = `CAST(round(unixepoch('subsec') * 1000) AS INTEGER)`

// The numbers of idempotency.Status in the statements below: 1 is InProgress, 3
// FailedRetryable, 6 Unknown; of idempotency.Takeover: 1 is Reexecute, 2 Resume,
// after which what died is begun again. They never change.

const (
	theRecord = ` scope = ?1 AND operation = ?2 AND key = ?3 `

	// theLease: the record is still that execution's.
	theLease = theRecord + ` AND owner = ?4 AND generation = ?5 `

	// alive is the negation of Record.Expired, and expired that itself, in a form
	// that the index serves.
	alive = ` (expires > ` + now + ` OR status = 6
		OR (status = 1 AND (lease_expires > ` + now + ` OR takeover NOT IN (1, 2)))) `
	expired = ` (status <> 6 AND expires <= ` + now + `
		AND (status <> 1 OR (lease_expires <= ` + now + ` AND takeover IN (1, 2)))) `

	// dead: an execution that is to become Unknown.
	dead = ` status = 1 AND lease_expires <= ` + now + ` AND takeover NOT IN (1, 2) `

	// asJudged: nothing has happened to the record since it was read. As its lease
	// and expiry are the same, and time does not go back, what was over is over.
	asJudged = theRecord + ` AND status = ?4 AND owner = ?5 AND generation = ?6 AND lease_expires = ?7 AND expires = ?8 `

	// columns are those of a record, as row.columns reads them, and named those with
	// its names.
	columns = ` fingerprint, status, owner, generation, started, updated, lease_expires,
		takeover, expires, code, reference, header, body, body IS NOT NULL `
	named = ` scope, operation, key, ` + columns

	// loadSQL gives one row: that of the record, or one that says that there is none,
	// and the time.
	loadSQL = `SELECT ` + columns + `, true, ` + now + ` FROM idempotency_records WHERE` + theRecord + `
		UNION ALL SELECT '', 0, '', 0, 0, 0, 0, 0, 0, 0, '', NULL, x'', 0, false, ` + now + ` LIMIT 1`

	// unwrittenSQL and stillSQL give the time, if there is no record, or if it is as it
	// was judged.
	unwrittenSQL = `SELECT ` + now + ` WHERE NOT EXISTS (SELECT 1 FROM idempotency_records WHERE` + theRecord + `)`
	stillSQL     = `SELECT ` + now + ` FROM idempotency_records WHERE` + asJudged

	insertSQL = `INSERT INTO idempotency_records
			(scope, operation, key, fingerprint, status, owner, generation, started, updated, lease_expires, takeover, expires)
		VALUES (?1, ?2, ?3, ?4, 1, ?5, 1, ` + now + `, ` + now + `, ` + now + ` + ?6, ?7, ` + now + ` + ?8)
		ON CONFLICT DO NOTHING
		RETURNING ` + named

	takeSQL = `UPDATE idempotency_records
		SET fingerprint = ?9, status = 1, owner = ?10, generation = generation + 1, started = ` + now + `,
			updated = ` + now + `, lease_expires = ` + now + ` + ?11, takeover = ?12, expires = ` + now + ` + ?13,
			code = 0, reference = '', header = NULL, body = NULL
		WHERE` + asJudged + `
		RETURNING ` + named

	setUnknown = `UPDATE idempotency_records
		SET status = 6, owner = '', generation = generation + 1, updated = ` + now

	abandonSQL = setUnknown + ` WHERE` + asJudged + ` RETURNING ` + named

	findDeadSQL = `SELECT 1 FROM idempotency_records WHERE` + dead + `LIMIT 1`

	abandonDeadSQL = setUnknown + ` WHERE id IN (SELECT id FROM idempotency_records WHERE` + dead + `LIMIT ?1)
		RETURNING ` + named

	// unknownSQL is a page of those after a name.
	unknownSQL = `SELECT ` + named + ` FROM idempotency_records
		WHERE status = 6 AND (scope, operation, key) > (?1, ?2, ?3) ORDER BY scope, operation, key LIMIT ?4`

	renewSQL = `UPDATE idempotency_records
		SET lease_expires = ` + now + ` + ?6, updated = ` + now + `
		WHERE` + theLease + `AND status = 1 AND` + alive

	// Unknown is settled once: it does not become Unknown again. Its time to live
	// begins anew.
	completeSQL = `UPDATE idempotency_records
		SET status = ?6, code = ?7, reference = ?8, header = ?9, body = ?10, updated = ` + now + `,
			expires = CASE WHEN ?11 > 0 THEN ` + now + ` + ?11
				WHEN status = 6 THEN ` + now + ` + (expires - started) ELSE expires END
		WHERE` + theLease + `AND (status = 1 OR (status = 6 AND ?6 <> 6)) AND` + alive

	releaseSQL = `UPDATE idempotency_records SET status = 3, updated = ` + now + `
		WHERE` + theLease + `AND status IN (1, 6) AND` + alive

	// finishSQL writes the whole record of joined work, when that is over. Nobody else
	// has had the write lock since it was looked for, so that the generation tells
	// whether it is as it was: with 1 there was none.
	finishSQL = `INSERT INTO idempotency_records
			(scope, operation, key, fingerprint, status, owner, generation, started, updated, lease_expires, takeover,
			expires, code, reference, header, body)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ` + now + `, ?9, ?10,
			CASE WHEN ?11 > 0 THEN ` + now + ` + ?11 ELSE ?12 END, ?13, ?14, ?15, ?16)
		ON CONFLICT (scope, operation, key) DO UPDATE
		SET fingerprint = excluded.fingerprint, status = excluded.status, owner = excluded.owner,
			generation = excluded.generation, started = excluded.started, updated = excluded.updated,
			lease_expires = excluded.lease_expires, takeover = excluded.takeover, expires = excluded.expires,
			code = excluded.code, reference = excluded.reference, header = excluded.header, body = excluded.body
		WHERE generation = excluded.generation - 1`

	// lockSQL takes the write lock and does nothing else.
	lockSQL = `UPDATE idempotency_records SET generation = generation WHERE false`

	findExpiredSQL = `SELECT 1 FROM idempotency_records WHERE` + expired + `LIMIT 1`

	sweepSQL = `DELETE FROM idempotency_records WHERE id IN
		(SELECT id FROM idempotency_records WHERE` + expired + `ORDER BY expires LIMIT ?1)`
)

// statements are those of the verbs.
type statements struct {
	load, unknown, findDead, findExpired            sqlitekit.Statement
	insert, take, abandon, renew, complete, release sqlitekit.Statement
	finish, abandonDead, sweep                      sqlitekit.Statement
}

// makeStatements makes each one of its text.
func makeStatements(statementOf func(text string) (sqlitekit.Statement, error)) (*statements, error) {
	var s statements
	for _, each := range []struct {
		to   *sqlitekit.Statement
		text string
	}{
		{&s.load, loadSQL}, {&s.unknown, unknownSQL}, {&s.findDead, findDeadSQL}, {&s.findExpired, findExpiredSQL},
		{&s.insert, insertSQL}, {&s.take, takeSQL}, {&s.abandon, abandonSQL}, {&s.renew, renewSQL},
		{&s.complete, completeSQL}, {&s.release, releaseSQL},
		{&s.finish, finishSQL}, {&s.abandonDead, abandonDeadSQL}, {&s.sweep, sweepSQL},
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
	return makeStatements(func(text string) (sqlitekit.Statement, error) { return db.PrepareContext(ctx, text) })
}

// within makes statements that run in tx. They are not prepared: that would last
// no longer than tx.
func within(tx *sql.Tx) *statements {
	s, _ := makeStatements(func(text string) (sqlitekit.Statement, error) { return sqlitekit.In(tx, text), nil }) // never fails
	return s
}

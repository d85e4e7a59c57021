package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// now is SQLite's clock in milliseconds. It is constant within a statement. The
// seconds are a float, and 0.123 may be a little less, therefore round.
const now = `CAST(round(unixepoch('subsec') * 1000) AS INTEGER)`

// Numbers of idempotency.Status in the statements: 1 is StatusInProgress, 3 FailedRetryable, 6
// Unknown. Numbers of idempotency.Takeover: 1 is Reexecute, 2 Resume, which repeat an
// execution that died. They never change.

const (
	theRecord = ` scope = ?1 AND operation = ?2 AND key = ?3 `

	// theLease: the execution still holds the record.
	theLease = theRecord + ` AND owner = ?4 AND generation = ?5 `

	// alive is the negation of Record.Expired. expired is Record.Expired, in a form
	// that the index supports.
	alive = ` (expires > ` + now + ` OR status = 6
		OR (status = 1 AND (lease_expires > ` + now + ` OR takeover NOT IN (1, 2)))) `
	expired = ` (status <> 6 AND expires <= ` + now + `
		AND (status <> 1 OR (lease_expires <= ` + now + ` AND takeover IN (1, 2)))) `

	// dead: an execution that must become Unknown.
	dead = ` status = 1 AND lease_expires <= ` + now + ` AND takeover NOT IN (1, 2) `

	// asJudged: the record has not changed since it was read. Its lease and expiry are
	// the same, and a lease that was over then is over now.
	asJudged = theRecord + ` AND status = ?4 AND owner = ?5 AND generation = ?6 AND lease_expires = ?7 AND expires = ?8 `

	// columns are the columns that row.columns reads. named begins with the ID.
	columns = ` fingerprint, status, owner, generation, started, updated, lease_expires,
		takeover, expires, code, reference, header, body, body IS NOT NULL `
	named = ` scope, operation, key, ` + columns

	// load returns one row: the record, or a row that says that there is none. Its
	// last column is the time.
	load = `SELECT ` + columns + `, true, ` + now + ` FROM idempotency_records WHERE` + theRecord + `
		UNION ALL SELECT '', 0, '', 0, 0, 0, 0, 0, 0, 0, '', NULL, x'', 0, false, ` + now + ` LIMIT 1`

	// absent returns the time if there is no record, unchanged if the record is
	// as it was judged.
	absent    = `SELECT ` + now + ` WHERE NOT EXISTS (SELECT 1 FROM idempotency_records WHERE` + theRecord + `)`
	unchanged = `SELECT ` + now + ` FROM idempotency_records WHERE` + asJudged

	insert = `INSERT INTO idempotency_records
			(scope, operation, key, fingerprint, status, owner, generation, started, updated, lease_expires, takeover, expires)
		VALUES (?1, ?2, ?3, ?4, 1, ?5, 1, ` + now + `, ` + now + `, ` + now + ` + ?6, ?7, ` + now + ` + ?8)
		ON CONFLICT DO NOTHING
		RETURNING ` + named

	take = `UPDATE idempotency_records
		SET fingerprint = ?9, status = 1, owner = ?10, generation = generation + 1, started = ` + now + `,
			updated = ` + now + `, lease_expires = ` + now + ` + ?11, takeover = ?12, expires = ` + now + ` + ?13,
			code = 0, reference = '', header = NULL, body = NULL
		WHERE` + asJudged + `
		RETURNING ` + named

	setUnknown = `UPDATE idempotency_records
		SET status = 6, owner = '', generation = generation + 1, updated = ` + now

	markUnknown = setUnknown + ` WHERE` + asJudged + ` RETURNING ` + named

	findDead = `SELECT 1 FROM idempotency_records WHERE` + dead + `LIMIT 1`

	reap = setUnknown + ` WHERE id IN (SELECT id FROM idempotency_records WHERE` + dead + `LIMIT ?1)
		RETURNING ` + named

	// unknown is a page of the records after a name.
	unknown = `SELECT ` + named + ` FROM idempotency_records
		WHERE status = 6 AND (scope, operation, key) > (?1, ?2, ?3) ORDER BY scope, operation, key LIMIT ?4`

	renew = `UPDATE idempotency_records
		SET lease_expires = ` + now + ` + ?6, updated = ` + now + `
		WHERE` + theLease + `AND status = 1 AND` + alive

	// A record that is Unknown does not become Unknown again. Its time to live begins
	// again.
	complete = `UPDATE idempotency_records
		SET status = ?6, code = ?7, reference = ?8, header = ?9, body = ?10, updated = ` + now + `,
			expires = CASE WHEN ?11 > 0 THEN ` + now + ` + ?11
				WHEN status = 6 THEN ` + now + ` + (expires - started) ELSE expires END
		WHERE` + theLease + `AND (status = 1 OR (status = 6 AND ?6 <> 6)) AND` + alive

	release = `UPDATE idempotency_records SET status = 3, updated = ` + now + `
		WHERE` + theLease + `AND status IN (1, 6) AND` + alive

	// finish writes the whole record of transactional work at its end. The
	// transaction has had the write lock since it read the record. RollbackAndRecord
	// has not, and the generation shows whether the record has changed.
	finish = `INSERT INTO idempotency_records
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

	// lockSQL takes the write lock and changes nothing.
	lockSQL = `UPDATE idempotency_records SET generation = generation WHERE false`

	// probeSQL writes a page: it toggles a bit without a meaning. SQLite does not write
	// a page that stays the same.
	probeSQL = `UPDATE idempotency_schema SET applied = (applied | 1) - (applied & 1)`

	findExpired = `SELECT 1 FROM idempotency_records WHERE` + expired + `LIMIT 1`

	sweep = `DELETE FROM idempotency_records WHERE id IN
		(SELECT id FROM idempotency_records WHERE` + expired + `ORDER BY expires LIMIT ?1)`
)

// statements are ready to run on a pool or in a transaction, by their texts.
type statements map[string]sqlitekit.Statement

func texts() []string {
	return []string{
		load, unknown, findDead, findExpired, insert, take, markUnknown, renew, complete, release, finish, reap, sweep, absent, unchanged,
	}
}

// prepare makes prepared statements of a pool, which outlive its connections.
func (s statements) prepare(ctx context.Context, db *sql.DB) error {
	for _, text := range texts() {
		prepared, err := db.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		s[text] = prepared
	}
	return nil
}

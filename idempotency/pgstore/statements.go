package pgstore

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are all that is ever sent, with the table's name filled in.
//
// None depends on what a connection remembers, and none takes a time from this
// process: durations go to the database in microseconds, and it adds them to its
// own clock. That is clock_timestamp(), because in a transaction of the caller's
// now() may be long ago.
type statements struct {
	claim, claimAsync, claimWithin string
	take, takeAsync, takeWithin    string
	abandon, abandonWithin         string
	renew                          string
	complete                       string
	release                        string
	owned                          string
	lock                           string
	finish                         string
	load                           string
	sweep                          string
}

// columns are those of a record, in the order of scanRecord.
const columns = `scope, operation, key, fingerprint, status, owner, generation,
	lease_expires, started, updated, expires, code, header, body, reference`

// A record is found by its names, which are always the first three arguments.
const found = `scope = $1 AND operation = $2 AND key = $3`

const (
	// holds is that the lease, owner $4 and generation $5, is that of an execution
	// under way. An expired record is nobody's (Record.Expired).
	holds = found + ` AND owner = $4 AND generation = $5 AND status = 1
		AND (expires > clock_timestamp() OR lease_expires > clock_timestamp())`

	// settles is that the lease may end the record: that of an execution under way,
	// or a reconciler's.
	settles = found + ` AND owner = $4 AND generation = $5
		AND (status = 6 OR status = 1 AND (expires > clock_timestamp() OR lease_expires > clock_timestamp()))`

	// unlocked finds the row, and nothing if somebody else has a lock on it, for
	// no statement may wait for another's transaction. What the lock finds is judged
	// by its newest version. The key is not changed, hence NO KEY.
	unlocked = ` FOR NO KEY UPDATE SKIP LOCKED`

	// outcome writes $6 to $11.
	outcome = `status = $6::smallint, code = $7::bigint, header = $8::text, body = $9::bytea, reference = $10::bytea,
		updated = clock_timestamp(),
		expires = CASE WHEN $11::bigint > 0 THEN clock_timestamp() + $11::bigint * interval '1 microsecond'
			WHEN status = 6 THEN clock_timestamp() + (expires - started) ELSE expires END`
)

// What is set for the transaction of a claim, which is its statement, before that
// does anything else.
const (
	// impatient ends a claim's wait for what somebody else has not committed, which
	// a transaction of its caller's may keep so for long.
	impatient = `set_config('lock_timeout', '100ms', true)`

	// async lets the commit return before it is on disk. It is for Claim.Joined
	// alone, and safe there because the log of a database is flushed in order: if
	// the commit of the work is on disk, then so is the claim, which was written
	// before it. If neither is, there was neither claim nor work.
	async = `set_config('synchronous_commit', 'off', true)`

	// nothing is set in a transaction of the caller's.
	nothing = `NULL`
)

// claim writes a new record. If it returns no row, another claim was faster.
//
//nolint:dupword // "t, t"
const claim = `INSERT INTO {{records}}
	(scope, operation, key, fingerprint, status, owner, generation, lease_expires, started, updated, expires)
SELECT $1::text, $2::text, $3::text, $4::text, 1, $5::text, 1,
	t + $6::bigint * interval '1 microsecond', t, t, t + $7::bigint * interval '1 microsecond'
FROM (SELECT clock_timestamp() AS t, {{settings}}) AS clock
ON CONFLICT DO NOTHING
RETURNING ` + columns + `, clock_timestamp()`

// name is the number of an advisory lock for the record. Open joined work has that
// lock, and nothing else keeps it for longer than a statement. The table's own number
// keeps stores of the same names in several schemas apart.
const name = `hashtextextended($1::text || chr(1) || $2::text || chr(1) || $3::text, '{{literal}}'::regclass::oid::bigint)`

// judged is the row as it was when Decide looked at it, or none. A lock that
// somebody has on the row is waited for, because it belongs to a statement that is
// about to commit what this claim must know. It is another matter where work is
// joined: that may last, its lock on the name tells, and the row is left alone.
const judged = `SELECT ctid
	FROM {{records}} AS record, (SELECT pg_try_advisory_xact_lock_shared(` + name + `) AS idle, {{settings}} OFFSET 0) AS gate
	WHERE idle AND ` + found + `
		AND status = $4::smallint AND owner = $5::text AND generation = $6::bigint AND lease_expires = $7::timestamptz
	FOR NO KEY UPDATE OF record`

const take = `UPDATE {{records}} SET
	fingerprint = $8::text, status = 1, owner = $9::text, generation = generation + 1,
	lease_expires = t + $10::bigint * interval '1 microsecond', started = t, updated = t,
	expires = t + $11::bigint * interval '1 microsecond',
	code = 0, header = NULL, body = NULL, reference = NULL
FROM (SELECT clock_timestamp() AS t) AS clock
WHERE ctid = (` + judged + `)
RETURNING ` + columns

const abandon = `UPDATE {{records}} SET
	status = 6, owner = '', generation = generation + 1, updated = clock_timestamp()
WHERE ctid = (` + judged + `)
RETURNING ` + columns

const renew = `UPDATE {{records}} SET
	lease_expires = clock_timestamp() + $6::bigint * interval '1 microsecond', updated = clock_timestamp()
WHERE ctid = (SELECT ctid FROM {{records}} WHERE ` + holds + unlocked + `)`

// An Unknown record is settled once: it does not become Unknown again.
const complete = `UPDATE {{records}} SET ` + outcome + `
WHERE ctid = (SELECT ctid FROM {{records}} WHERE ` + settles + ` AND (status = 1 OR $6::smallint <> 6)` + unlocked + `)`

const release = `UPDATE {{records}} SET status = 3, updated = clock_timestamp()
WHERE ctid = (SELECT ctid FROM {{records}} WHERE ` + settles + unlocked + `)`

// owned is the status of the record, if the lease holds it in the eyes of those who
// do not need the row for themselves.
const owned = `SELECT status FROM {{records}} WHERE ` + settles

// lock begins joined work: its row lock is what holds the record, however long the
// transaction takes. The transaction's number is for fate. $6 is how many milliseconds it may take. Before PostgreSQL 17
// only an idle transaction can be ended by the server.
const lock = `SELECT
	CASE WHEN $6::bigint > 0 THEN set_config('idle_in_transaction_session_timeout', $6::text, true) END,
	CASE WHEN $6::bigint > 0 AND current_setting('server_version_num')::int >= 170000
		THEN set_config('transaction_timeout', $6::text, true) END,
	pg_current_xact_id()::text
FROM {{records}} AS record, (SELECT pg_try_advisory_xact_lock(` + name + `) AS idle OFFSET 0) AS gate
WHERE idle AND ` + holds + `
FOR NO KEY UPDATE OF record SKIP LOCKED`

// fate is what has become of a transaction, of number $1.
const fate = `SELECT coalesce(pg_xact_status($1::text::xid8), '')`

// finish ends joined work. It fails, by a division by zero, if the record is not
// this execution's: the COMMIT that is sent along with it is not executed then.
const finish = `WITH finished AS (
	UPDATE {{records}} SET ` + outcome + `
	WHERE ` + found + ` AND owner = $4 AND generation = $5 AND status = 1
	RETURNING 1
)
SELECT 1 / count(*) FROM finished`

const load = `SELECT ` + columns + `, clock_timestamp() FROM {{records}} WHERE ` + found

// sweep deletes what is expired by Record.Expired. The time is that of the
// statement, which, unlike clock_timestamp(), can be looked up in an index.
const sweep = `DELETE FROM {{records}} WHERE ctid = ANY (ARRAY (
	SELECT ctid FROM {{records}}
	WHERE expires <= statement_timestamp() AND status <> 6
		AND (status <> 1 OR lease_expires <= statement_timestamp())
	ORDER BY expires LIMIT $1
	FOR UPDATE SKIP LOCKED
))`

func newStatements(t tables) statements {
	fill := func(statement string, settings ...string) string {
		return strings.NewReplacer(
			"{{records}}", t.records,
			"{{literal}}", strings.ReplaceAll(t.records, "'", "''"),
			"{{settings}}", strings.Join(settings, ", "),
		).Replace(statement)
	}
	return statements{
		claim:         fill(claim, impatient),
		claimAsync:    fill(claim, impatient, async),
		claimWithin:   fill(claim, nothing),
		take:          fill(take, impatient),
		takeAsync:     fill(take, impatient, async),
		takeWithin:    fill(take, nothing),
		abandon:       fill(abandon, impatient),
		abandonWithin: fill(abandon, nothing),
		renew:         fill(renew),
		complete:      fill(complete),
		release:       fill(release),
		owned:         fill(owned),
		lock:          fill(lock),
		finish:        fill(finish),
		load:          fill(load),
		sweep:         fill(sweep),
	}
}

// tables are the names of what the store has in the database, quoted.
type tables struct {
	schema                     string // "": the first of the search path
	records, versions, expires string
	versionsName               string // not quoted
}

func newTables(schema, table string) tables {
	quoted := func(name string) string {
		if schema == "" {
			return pgx.Identifier{name}.Sanitize()
		}
		return pgx.Identifier{schema, name}.Sanitize()
	}
	return tables{
		schema:       schema,
		records:      quoted(table),
		versions:     quoted(table + "_version"),
		versionsName: table + "_version",
		expires:      pgx.Identifier{table + "_expires"}.Sanitize(), // An index is in the schema of its table.
	}
}

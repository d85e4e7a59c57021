package pgstore

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are all that is ever sent, with the table's names filled in.
//
// None depends on what a connection remembers, and none takes a time from this
// process: durations go to the database in microseconds, and it adds them to its
// own clock. That is clock_timestamp(), because in a transaction of the caller's
// now() may be long ago.
type statements struct {
	// Of executions with a lease.
	claim, take, markUnknown, idle  string
	renew, complete, release, owned string
	reap, sweep, sweepLapsed        string
	load, unknownOfAll, unknownOf   string

	// Of transactional work. lock is for newTransactionSettings.
	lock, wait, here                           string
	supersede, insert, insertHere, insertAlone string
}

// columns are those of a record, in the order of scanRecord.
const columns = `scope, operation, key, fingerprint, status, owner, generation, lease_expires, takeover,
	started, updated, expires, code, header, body, reference`

// A record is found by its names, which are always the first three arguments.
const byName = `scope = $1 AND operation = $2 AND key = $3`

const (
	// holds is that the lease, owner $4 and generation $5, is that of an execution
	// under way. One that has expired is nobody's (Record.Expired).
	holds = byName + ` AND owner = $4 AND generation = $5 AND status = 1
		AND (expires > clock_timestamp() OR lease_expires > clock_timestamp() OR takeover NOT IN (1, 2))`

	// settles is that the lease may end the record: that of an execution under way,
	// or a reconciler's.
	settles = byName + ` AND owner = $4 AND generation = $5
		AND (status = 6 OR status = 1
			AND (expires > clock_timestamp() OR lease_expires > clock_timestamp() OR takeover NOT IN (1, 2)))`

	// judged is the record as it was when Decide looked at it, or none.
	judged = byName + ` AND status = $4::smallint AND owner = $5::text AND generation = $6::bigint
		AND lease_expires IS NOT DISTINCT FROM $7::timestamptz`

	// unlocked finds the row, and nothing if somebody else has a lock on it, for
	// no statement may wait for another's transaction. What the lock finds is judged
	// by its newest version. The key is not changed, hence NO KEY.
	unlocked = ` FOR NO KEY UPDATE OF record SKIP LOCKED`

	// lapsed is that an execution has died.
	lapsed = `status = 1 AND lease_expires <= statement_timestamp()`
)

// name is the number of an advisory lock for the record. An open transaction has it
// to itself, and a claim of a detached execution takes it for a moment, together
// with others of its kind. The table's own number keeps stores of the same names in
// several schemas apart.
const name = `hashtextextended($1::text || chr(1) || $2::text || chr(1) || $3::text, '{{literal}}'::regclass::oid::bigint)`

// gate is open where no transaction is at the record.
const gate = `(SELECT pg_try_advisory_xact_lock_shared(` + name + `) AS idle, {{safe}} OFFSET 0) AS gate`

// claim writes a new record. No row: there is one, or somebody else is at it.
//
//nolint:dupword // started and updated are the same moment
const claim = `INSERT INTO {{records}} (scope, operation, key, fingerprint, status, owner, generation, lease_expires, takeover,
	started, updated, expires)
SELECT $1::text, $2::text, $3::text, $4::text, 1, $5::text, 1, t + $6::bigint * interval '1 microsecond', $8::smallint,
	t, t, t + $7::bigint * interval '1 microsecond'
FROM (SELECT clock_timestamp() AS t, pg_try_advisory_xact_lock_shared(` + name + `) AS idle, {{safe}} OFFSET 0) AS gate
WHERE idle
ON CONFLICT DO NOTHING
RETURNING started, lease_expires, expires`

// idle is why claim, take or abandon found nothing: false where a transaction is at
// the record.
const idle = `SELECT pg_try_advisory_xact_lock_shared(` + name + `)`

const take = `UPDATE {{records}} SET
	fingerprint = $8::text, status = 1, owner = $9::text, generation = generation + 1, takeover = $12::smallint,
	lease_expires = t + $10::bigint * interval '1 microsecond', started = t, updated = t,
	expires = t + $11::bigint * interval '1 microsecond',
	code = 0, header = NULL, body = NULL, reference = NULL
FROM (SELECT clock_timestamp() AS t) AS clock
WHERE ctid = (SELECT ctid FROM {{records}} AS record, ` + gate + ` WHERE idle AND ` + judged + unlocked + `)
RETURNING ` + columns

// abandoned is what an execution that died leaves.
const unknown = `status = 6, owner = '', generation = generation + 1, updated = clock_timestamp()`

const markUnknown = `UPDATE {{records}} SET ` + unknown + `
WHERE ctid = (SELECT ctid FROM {{records}} AS record, ` + gate + ` WHERE idle AND ` + judged + unlocked + `)
RETURNING ` + columns

// durable is joined to the row that a statement changes, for its side effect.
const durable = `{{records}} AS record, (SELECT {{safe}} OFFSET 0) AS durable`

const reap = `UPDATE {{records}} SET ` + unknown + `
WHERE ctid = ANY (ARRAY (SELECT ctid FROM ` + durable + `
	WHERE ` + lapsed + ` AND takeover NOT IN (1, 2) LIMIT $1` + unlocked + `))
RETURNING ` + columns

const renew = `UPDATE {{records}} SET
	lease_expires = clock_timestamp() + $6::bigint * interval '1 microsecond', updated = clock_timestamp()
WHERE ctid = (SELECT ctid FROM ` + durable + ` WHERE ` + holds + unlocked + `)`

// complete settles an Unknown record once: it does not become Unknown again.
const complete = `UPDATE {{records}} SET
	status = $6::smallint, lease_expires = CASE WHEN $6::smallint = 6 THEN lease_expires END, code = $7::bigint, header = $8::text, body = $9::bytea, reference = $10::bytea,
	updated = clock_timestamp(),
	expires = CASE WHEN $11::bigint > 0 THEN clock_timestamp() + $11::bigint * interval '1 microsecond'
		WHEN status = 6 THEN clock_timestamp() + (expires - started) ELSE expires END
WHERE ctid = (SELECT ctid FROM ` + durable + ` WHERE ` + settles + ` AND (status = 1 OR $6::smallint <> 6)` + unlocked + `)`

const release = `UPDATE {{records}} SET status = 3, lease_expires = NULL, updated = clock_timestamp()
WHERE ctid = (SELECT ctid FROM ` + durable + ` WHERE ` + settles + unlocked + `)`

// owned is the status of the record, if the lease holds it in the eyes of those who
// do not need the row for themselves.
const owned = `SELECT status FROM {{records}} WHERE ` + settles

const load = `SELECT ` + columns + `, clock_timestamp() FROM {{records}} WHERE ` + byName

// A page of what is unknown, of all scopes or of one, after the record of the first
// three arguments.
const (
	unknownOfAll = `SELECT ` + columns + ` FROM {{records}}
WHERE status = 6 AND lease_expires IS NOT NULL AND (scope, operation, key) > ($1, $2, $3) ORDER BY scope, operation, key LIMIT $4`

	unknownOf = `SELECT ` + columns + ` FROM {{records}}
WHERE status = 6 AND lease_expires IS NOT NULL AND scope = $1 AND (operation, key) > ($2, $3) ORDER BY operation, key LIMIT $4`
)

// What is expired by Record.Expired. The time is that of the statement, which, unlike
// clock_timestamp(), can be looked up in an index.
const (
	sweep = `DELETE FROM {{records}} WHERE ctid = ANY (ARRAY (
	SELECT ctid FROM {{records}}
	WHERE expires <= statement_timestamp() AND lease_expires IS NULL
	ORDER BY expires LIMIT $1
	FOR UPDATE SKIP LOCKED
))`

	sweepLapsed = `DELETE FROM {{records}} WHERE ctid = ANY (ARRAY (
	SELECT ctid FROM {{records}}
	WHERE ` + lapsed + ` AND takeover IN (1, 2) AND expires <= statement_timestamp()
	LIMIT $1
	FOR UPDATE SKIP LOCKED
))`
)

// lock begins transactional work. It is a statement of its own, because the read that
// follows must see what the transaction that had the lock before has committed. The
// settings end with the transaction.
const lock = `SELECT pg_try_advisory_xact_lock(` + name + `), transaction_timestamp(), current_setting('transaction_read_only') = 'on',
	num_nulls({{safe}}{{settings}})`

// wait is lock for a transaction of the caller's: its end is waited for by those who
// are in such a one too.
const wait = `SELECT clock_timestamp() FROM (SELECT pg_advisory_xact_lock(` + name + `) OFFSET 0) AS waited`

// supersede makes room for insert, if the record is still the one that was judged.
const supersede = `DELETE FROM {{records}} WHERE ` + judged

// What insert writes: the record of joined work with its end.
const (
	insertion = `INSERT INTO {{records}} (` + columns + `)`

	values = `$1::text, $2::text, $3::text, $4::text, $5::smallint, ` + valuesAfterStatus

	valuesAfterStatus = `$6::text, $7::bigint, $8::timestamptz, $9::smallint,
	$10::timestamptz, clock_timestamp(), coalesce($11::timestamptz, clock_timestamp() + $12::bigint * interval '1 microsecond'),
	$13::bigint, $14::text, $15::bytea, $16::bytea`
)

// insert fails, by the unique key, if another execution has written the record. The
// COMMIT that is sent along with it is not executed then.
const insert = insertion + ` VALUES (` + values + `)`

// insertHere is insert that fails, because the status cannot be NULL, if the transaction
// is not the one that Begin has opened: the work has sent COMMIT or ROLLBACK as a
// statement. Two transactions of one connection do not begin in the same microsecond.
const insertHere = insertion + ` VALUES ($1::text, $2::text, $3::text, $4::text,
	CASE WHEN transaction_timestamp() = $10::timestamptz THEN $5::smallint END, ` + valuesAfterStatus + `)`

// here is whether the transaction is the one that Begin has opened.
const here = `SELECT transaction_timestamp() = $1::timestamptz`

// insertAlone is insert for a refusal, whose transaction has ended: it writes nothing
// if somebody else is at the record.
const insertAlone = insertion + ` SELECT ` + values + ` FROM (SELECT {{safe}} OFFSET 0) AS durable
WHERE pg_try_advisory_xact_lock(` + name + `) ON CONFLICT DO NOTHING`

// newStatements fills names in, and whether what is committed is to be safe: in a
// transaction of the caller's that is the caller's business.
func newStatements(t *tables, safe string) *statements {
	fill := strings.NewReplacer(
		"{{records}}", t.records,
		"{{literal}}", strings.ReplaceAll(t.records, "'", "''"),
		"{{safe}}", safe,
	).Replace
	return &statements{
		claim: fill(claim), take: fill(take), markUnknown: fill(markUnknown), idle: fill(idle),
		renew: fill(renew), complete: fill(complete), release: fill(release), owned: fill(owned),
		reap: fill(reap), sweep: fill(sweep), sweepLapsed: fill(sweepLapsed),
		load: fill(load), unknownOfAll: fill(unknownOfAll), unknownOf: fill(unknownOf),
		lock: fill(lock), wait: fill(wait), here: here,
		supersede: fill(supersede), insert: fill(insert), insertHere: fill(insertHere), insertAlone: fill(insertAlone),
	}
}

// tables are the names of what the store has in the database, quoted.
type tables struct {
	schema                           string // "": the first of the search path
	name                             string // of the records, not quoted
	records, versions, expires, open string
}

func newTables(schema, table string) *tables {
	quoted := func(name string) string {
		if schema == "" {
			return pgx.Identifier{name}.Sanitize()
		}
		return pgx.Identifier{schema, name}.Sanitize()
	}
	return &tables{
		schema:   schema,
		name:     table,
		records:  quoted(table),
		versions: quoted(table + "_version"),
		expires:  pgx.Identifier{table + "_expires"}.Sanitize(), // An index is in the schema of its table.
		open:     pgx.Identifier{table + "_open"}.Sanitize(),
	}
}

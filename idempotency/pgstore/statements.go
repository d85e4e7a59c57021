package pgstore

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// statements are the store's SQL, with the table's names filled in.
//
// No statement depends on a connection's session or on this process's clock: durations
// are sent in microseconds and added to clock_timestamp() or statement_timestamp(). now() may
// be long ago in a transaction of the caller.
//
// The parts of an expression cost the server more than the access to the row, so the statements of an execution that is claimed
// and completed have few.
type statements struct {
	// Of executions with a lease.
	claim, take, markUnknown, idle string
	renew, release, owned          string
	complete, doubt                string // doubt completes as Unknown
	reap, reaped, sweep            string
	load, unknownOfAll, unknownOf  string

	// Of transactional work. lock is for newTransactionSettings.
	lock, read, wait, here                     string
	supersede, insert, insertHere, insertAlone string
}

// columns are the columns of a record, in the order of the table, which spares PostgreSQL
// a projection, and of found.scan.
const columns = `started, updated, expires, generation, code, lease_expires, status, takeover,
	scope, operation, key, fingerprint, owner, header, body, reference`

// byName finds a record. Its names are always the first three arguments.
const byName = `scope = $1 AND operation = $2 AND key = $3`

const (
	// holds is true if the lease, owner $4 and generation $5, belongs to a running
	// execution, and its record has not expired (Record.Expired).
	holds = byName + ` AND owner = $4 AND generation = $5 AND status = 1
		AND (expires > clock_timestamp() OR lease_expires > clock_timestamp() OR takeover NOT IN (1, 2))`

	// mayEnd is true if the lease may end the record: a running execution's, or a
	// reconciler's.
	mayEnd = byName + ` AND owner = $4 AND generation = $5
		AND (status = 6 OR status = 1
			AND (expires > clock_timestamp() OR lease_expires > clock_timestamp() OR takeover NOT IN (1, 2)))`

	// judged finds the record if it is still the one that Decide saw.
	judged = byName + ` AND status = $4::smallint AND owner = $5::text AND generation = $6::bigint
		AND lease_expires IS NOT DISTINCT FROM $7::timestamptz`

	// unlocked locks the row, and skips it if another transaction has locked it, because
	// no statement may wait for a transaction for longer than a moment. The conditions apply to the newest version
	// of the row. NO KEY suffices, because the key does not change.
	unlocked = ` FOR NO KEY UPDATE OF record SKIP LOCKED`

	// lapsed is true if an execution has died.
	lapsed = `status = 1 AND lease_expires <= statement_timestamp()`
)

// name is the number of the record's advisory lock. Transactional work holds it
// exclusively; claims of leases share it for a moment. The table's OID separates stores of
// the same names in several schemas.
const name = `hashtextextended($1::text || chr(1) || $2::text || chr(1) || $3::text, '{{literal}}'::regclass::oid::bigint)`

// gate is idle if no transactional work has the record. What makes the commits of claims durable is in limited.
const gate = `(SELECT pg_try_advisory_xact_lock_shared(` + name + `) AS idle OFFSET 0) AS gate`

// claim inserts a record. It returns no row if there is a record, or if transactional
// work has it.
//
//nolint:dupword // started and updated are the same moment
const claim = `INSERT INTO {{records}} (scope, operation, key, fingerprint, status, owner, generation, lease_expires, takeover,
	started, updated, expires)
SELECT $1::text, $2::text, $3::text, $4::text, 1, $5::text, 1, statement_timestamp() + $6::bigint * interval '1 microsecond', $8::smallint,
	statement_timestamp(), statement_timestamp(), statement_timestamp() + $7::bigint * interval '1 microsecond'
WHERE pg_try_advisory_xact_lock_shared(` + name + `)
ON CONFLICT DO NOTHING
RETURNING started, lease_expires, expires`

// idle is false if transactional work is the reason why claim, take or markUnknown
// returned no row.
const idle = `SELECT pg_try_advisory_xact_lock_shared(` + name + `)`

const take = `UPDATE {{records}} SET
	fingerprint = $8::text, status = 1, owner = $9::text, generation = generation + 1, takeover = $12::smallint,
	lease_expires = t + $10::bigint * interval '1 microsecond', started = t, updated = t,
	expires = t + $11::bigint * interval '1 microsecond',
	code = 0, header = NULL, body = NULL, reference = NULL
FROM (SELECT clock_timestamp() AS t) AS clock
WHERE ctid = (SELECT ctid FROM {{records}} AS record, ` + gate + ` WHERE idle AND ` + judged + unlocked + `)
RETURNING ` + columns

// unknown is the change to the record of an execution that died.
const unknown = `status = 6, ` + epoch + `, owner = '', generation = generation + 1, updated = clock_timestamp()`

const markUnknown = `UPDATE {{records}} SET ` + unknown + `
WHERE ctid = (SELECT ctid FROM {{records}} AS record, ` + gate + ` WHERE idle AND ` + judged + unlocked + `)
RETURNING ` + columns

// epoch is the end of the lease of an Unknown record, by which the index of leases finds it. An execution that has ended keeps the
// end of its lease, so that its update writes no index.
const epoch = `lease_expires = 'epoch'`

// durable adds the expression of durability, for its side effect, to the row that a
// statement changes.
const durable = `{{records}} AS record, (SELECT {{durably}} OFFSET 0) AS durable`

// reap finds executions that died by the index of leases, which also has those that ended. To read each of these once, it begins
// shortly before the time up to which all that died have been found. The margin is for claims that were committed late, and that
// time does not count if the clock was set back.
//
// reaped notes the time, in the record without a key: that of the first one that is left, because its row was locked, or now.
const (
	reap = `UPDATE {{records}} SET ` + unknown + `
WHERE ctid = ANY (ARRAY (SELECT ctid FROM ` + durable + ` WHERE ` + unreaped + ` LIMIT $1` + unlocked + `))
RETURNING ` + columns

	unreaped = `lease_expires > coalesce((SELECT least(started, statement_timestamp()) FROM {{records}}
		WHERE scope = '' AND operation = '' AND key = ''), '-infinity') - interval '10 seconds' AND ` + lapsed + ` AND takeover NOT IN (1, 2)`

	reaped = `INSERT INTO {{records}} (scope, operation, key, fingerprint, owner, status, takeover, generation, started, updated, expires)
SELECT '', '', '', '', '', 0, 0, 0, t AS started, t AS updated, 'infinity'
FROM (SELECT coalesce(min(lease_expires), statement_timestamp()) AS t FROM {{records}} WHERE ` + unreaped + `) AS first
ON CONFLICT (scope, operation, key) DO UPDATE SET started = excluded.started, updated = excluded.updated`
)

// renew, complete and release are the changes by the holder of a lease.
const renew = `lease_expires = clock_timestamp() + $6::bigint * interval '1 microsecond', updated = clock_timestamp()`

// complete ends a running or an Unknown record; with epoch it makes a running one Unknown. No index has a column that changes when
// an execution ends, unless that takes more than a tenth of the TTL: then the update is HOT, and writes the row alone.
const complete = `status = $6::smallint, code = $7::bigint, header = $8::text, body = $9::bytea, reference = $10::bytea,
	updated = clock_timestamp(),
	expires = CASE WHEN $11::bigint > 0 THEN clock_timestamp() + $11::bigint * interval '1 microsecond'
		WHEN status = 6 THEN clock_timestamp() + (expires - started) ELSE expires END`

const release = `status = 3, updated = clock_timestamp()`

// owned returns the status of the record if the lease may end it, also if the row is
// locked.
const owned = `SELECT status FROM {{records}} WHERE ` + mayEnd

const (
	load = `SELECT ` + columns + `, clock_timestamp() FROM {{records}} WHERE ` + byName

	// read is load without the time.
	read = `SELECT ` + columns + ` FROM {{records}} WHERE ` + byName
)

// unknownOfAll and unknownOf return a page of Unknown records, of all scopes or of one, after the record of the first three
// arguments. They are few, so each page finds all of them by the index of leases, and not in the order of the key.
const (
	inDoubt = `WITH in_doubt AS MATERIALIZED (SELECT ` + columns + ` FROM {{records}} WHERE ` + epoch + ` AND status = 6)
SELECT ` + columns + ` FROM in_doubt `

	unknownOfAll = inDoubt + `WHERE (scope, operation, key) > ($1, $2, $3) ORDER BY scope, operation, key LIMIT $4`

	unknownOf = inDoubt + `WHERE scope = $1 AND (operation, key) > ($2, $3) ORDER BY operation, key LIMIT $4`
)

// sweep deletes records that are expired as Record.Expired says. An index can find
// statement_timestamp(), but not clock_timestamp().
const sweep = `DELETE FROM {{records}} WHERE ctid = ANY (ARRAY (
	SELECT ctid FROM {{records}}
	WHERE expires <= statement_timestamp() AND (status NOT IN (1, 6) OR ` + lapsed + ` AND takeover IN (1, 2))
	ORDER BY expires LIMIT $1
	FOR UPDATE SKIP LOCKED
))`

// lock begins transactional work. It is a statement of its own, because the read that
// follows must see what the transaction that had the lock before has committed. The
// settings end with the transaction.
//
// Each function call costs the server half a microsecond. So the names are one argument,
// and the results of current_setting are judged by open.
const lock = `SELECT pg_try_advisory_xact_lock(hashtextextended($1::text, '{{literal}}'::regclass::oid::bigint)),
	transaction_timestamp(), current_setting('transaction_read_only'), current_setting('synchronous_commit'){{settings}}`

// wait is lock for a transaction of the caller. It waits for other callers' transactions.
const wait = `SELECT clock_timestamp() FROM (SELECT pg_advisory_xact_lock(` + name + `) OFFSET 0) AS waited`

// supersede deletes the record that insert replaces, if it is still the judged one.
const supersede = `DELETE FROM {{records}} WHERE ` + judged

// insertion and values write the record of transactional work with its outcome.
const (
	insertion = `INSERT INTO {{records}} (` + columns + `)`

	values = `$10::timestamptz, clock_timestamp(), coalesce($11::timestamptz, clock_timestamp() + $12::bigint * interval '1 microsecond'),
	$7::bigint, $13::bigint, $8::timestamptz, {{status}}, $9::smallint,
	$1::text, $2::text, $3::text, $4::text, $6::text, $14::text, $15::bytea, $16::bytea`
)

// insert fails, by the unique key, if another execution has written the record. The
// COMMIT that is sent along with it is not executed then.
const insert = insertion + ` VALUES (` + values + `)`

// insertHere is the status of an insert that fails, because the status cannot be NULL, if the transaction
// is not the one that Begin has opened: the work has sent COMMIT or ROLLBACK as a
// statement. Two transactions of one connection do not begin in the same microsecond.
const insertHere = `CASE WHEN transaction_timestamp() = $10::timestamptz THEN $5::smallint END`

// here is true in the transaction that Begin has opened.
const here = `SELECT transaction_timestamp() = $1::timestamptz`

// insertAlone is insert for RollbackAndRecord, after the transaction. It writes nothing
// if another execution has the record.
const insertAlone = insertion + ` SELECT ` + values + ` FROM (SELECT {{durably}} OFFSET 0) AS durable
WHERE pg_try_advisory_xact_lock(` + name + `) ON CONFLICT DO NOTHING`

// impatient is true. It lets the statement fail if another transaction has the record's row for longer than a moment.
const impatient = `num_nulls(set_config('lock_timeout', '10', true), {{durably}}) >= 0`

// newStatements fills in the names, and the expression that makes a commit durable. A caller decides that for its own transaction,
// and for its lock_timeout: there, a statement skips a row that is locked.
func newStatements(t *tables, caller bool) *statements {
	durably, before, after := pgkit.Durable, impatient+" AND ", ""
	if caller {
		durably, before, after = "NULL", "ctid = (SELECT ctid FROM {{records}} AS record WHERE ", unlocked+")"
	}
	fill := strings.NewReplacer(
		"{{records}}", t.records,
		"{{literal}}", strings.ReplaceAll(t.records, "'", "''"),
		"{{durably}}", durably,
		"{{status}}", "$5::smallint",
	).Replace
	held := func(change, condition string) string {
		return fill("UPDATE {{records}} SET " + change + " WHERE " + before + condition + after)
	}
	return &statements{
		claim: fill(claim), take: fill(take), markUnknown: fill(markUnknown), idle: fill(idle),
		renew: held(renew, holds), complete: held(complete, mayEnd), doubt: held(complete+", "+epoch, holds), release: held(release, mayEnd), owned: fill(owned),
		reap: fill(reap), reaped: fill(reaped), sweep: fill(sweep),
		load: fill(load), read: fill(read), unknownOfAll: fill(unknownOfAll), unknownOf: fill(unknownOf),
		lock: fill(lock), wait: fill(wait), here: here,
		supersede: fill(supersede), insert: fill(insert), insertHere: fill(strings.Replace(insert, "{{status}}", insertHere, 1)), insertAlone: fill(insertAlone),
	}
}

// tables are the quoted names of the store's tables and indexes.
type tables struct {
	schema                           string // "": the first of the search path
	name                             string // of the records, not quoted
	records, versions, expires, open string
	leases                           string
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
		leases:   pgx.Identifier{table + "_leases"}.Sanitize(),
	}
}

package pgstore

import (
	"sync"

	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// settings are those of the store's transactions. They make the planner use indexes, because
// its statistics are wrong for tables that fill and empty all the time. They also prevent
// compilation, and plans that were made for nearly empty tables.
const settings = `SELECT ` + pgkit.Durable + `, set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

const (
	intents = sqlquery.Intents
	workers = sqlquery.Workers
	waits   = sqlquery.Waits

	micros = ` * interval '1 microsecond' `

	// byDueTime is the order within a queue: that of the index. Of intents that are due at the
	// same time, the oldest is first.
	byDueTime = ` ORDER BY i.next_at, i.seq `

	// oneGateway and oneScope find a gateway and a scope with claimable intents, due or not.
	// Each is a seek in the index, for any number of rows.
	oneGateway = `SELECT i.gateway FROM` + intents + `i WHERE` + sqlquery.Claimable
	oneScope   = `SELECT i.scope FROM` + intents + `i WHERE` + sqlquery.Claimable + `AND i.gateway = g.gateway `
	byGateway  = ` ORDER BY i.gateway LIMIT 1`
	byScope    = ` ORDER BY i.scope LIMIT 1`
)

// clock is the database's time.
const clock = `SELECT clock_timestamp()`

// heartbeat returns the time at which the lease begins.
const heartbeat = `INSERT INTO` + workers + `AS w (id, expires_at, renewed)
	SELECT $1::text, now + $2::bigint` + micros + `, now FROM (SELECT clock_timestamp() AS now OFFSET 0) AS c
	ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, renewed = excluded.renewed RETURNING w.renewed`

// renewLeaseIfDue is heartbeat if a tenth of the lease is over. It returns the end of the lease.
// It does not write each time, because concurrent claims of one worker would wait for each
// other's commits on the worker's row.
const renewLeaseIfDue = `WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at, $2::bigint` + micros + `AS lease),
	there AS (SELECT w.expires_at FROM now, ` + workers + `w
		WHERE w.id = $1::text AND w.expires_at BETWEEN now.at + now.lease * 0.9 AND now.at + now.lease),
	extended AS (INSERT INTO` + workers + `AS w (id, expires_at, renewed)
		SELECT $1::text, now.at + now.lease, now.at FROM now WHERE NOT EXISTS (SELECT FROM there)
		ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, renewed = excluded.renewed RETURNING w.expires_at)
	SELECT expires_at FROM there UNION ALL SELECT expires_at FROM extended`

// The statements that read rows, as scanRow does.
//
//nolint:gochecknoglobals // constants
var (
	columns = sqlquery.Names("i.", sqlquery.IntentColumns) + `, i.seq`
	bare    = columns + `, NULL::bytea, 0::bigint FROM`

	// lock reads and locks the columns that Decide needs, in the order of the array.
	lock = `SELECT ` + bare + ` unnest($1::uuid[]) AS u(id) CROSS JOIN LATERAL (SELECT * FROM` + intents + `i WHERE i.id = u.id FOR UPDATE) i`

	lockOne = `SELECT ` + columns + `, i.payload, 0::bigint FROM` + intents + `i WHERE {{id}} AND` + isFree + `i.gateway) FOR UPDATE OF i SKIP LOCKED`

	lockLost = `SELECT ` + bare + intents + `i WHERE` + sqlquery.Held + `AND i.worker = ANY ($1::text[]) LIMIT $2::bigint FOR UPDATE OF i SKIP LOCKED`

	// choose selects up to $2 intents of each gateway $1, at most $3 of a scope. Each scope with due
	// intents gets an equal share, and scopes after $4 are first. $5 is the limit for other gateways.
	// $6 to $8 are the queues with a lower limit. $9 and $10 are queues that wait, in addition to
	// the provider's holds.
	choose = dueShares + `
	SELECT ` + columns + `, i.payload, d.place FROM d CROSS JOIN LATERAL (
		SELECT * FROM` + intents + `i WHERE` + sqlquery.Claimable + `AND i.gateway = d.gateway AND i.scope = d.scope
		` + byDueTime + `LIMIT least(d.each, (d.room - 1) / d.scopes + 1) FOR UPDATE SKIP LOCKED) i`

	// chooseMore selects more intents that are due in some queues, after those that choose selected.
	chooseMore = `SELECT ` + columns + `, i.payload, o.place
	FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[])
		AS o(gateway, scope, next_at, seq, want, place)
	CROSS JOIN LATERAL (
		SELECT * FROM` + intents + `i WHERE` + sqlquery.Claimable + `AND i.gateway = o.gateway AND i.scope = o.scope
			AND (i.next_at, i.seq) > (o.next_at, o.seq)
		` + byDueTime + `LIMIT o.want FOR UPDATE SKIP LOCKED) i`

	// dueSuspects selects some suspects that are due. takeSuspects also locks them.
	dueSuspects = `SELECT ` + columns + `, i.payload, 0::bigint FROM` + intents + `i WHERE` + sqlquery.Suspect +
		`AND i.next_at <= (SELECT clock_timestamp()) AND` + isFree + `i.gateway) ORDER BY i.next_at LIMIT 100`
	lockSuspects = dueSuspects + ` FOR UPDATE OF i SKIP LOCKED`

	// dueQueries selects up to $2 status queries of each gateway $1.
	dueQueries = `SELECT ` + columns + `, i.payload, 0::bigint
	FROM unnest($1::text[], $2::bigint[]) AS k(gateway, room)
	CROSS JOIN LATERAL (
		SELECT * FROM` + intents + `i WHERE i.state = 4 AND i.ask AND NOT i.later AND i.gateway = k.gateway
		ORDER BY i.next_at LIMIT k.room FOR UPDATE SKIP LOCKED) i
	WHERE` + isFree + `k.gateway)`

	// keepAttempts copies the last attempts to the journal.
	keepAttempts = `INSERT INTO` + sqlquery.Attempts + `(intent, ` + sqlquery.Names("", sqlquery.AttemptColumns) + `)
		SELECT i.id, ` + sqlquery.Names("i.a_", sqlquery.AttemptColumns) + ` FROM unnest($1::uuid[]) AS u(id) JOIN` + intents + `i ON i.id = u.id
		WHERE i.a_n > 0`
)

// insertNow inserts the rows u that follow it, and reads the time in the same statement. It
// computes what Decide computes from that time.
const insertNow = `WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
	INSERT INTO` + intents + `(id, scope, operation, key, gateway, fingerprint, next_at, later, created, since, updated,
		deadline, batch, "row", payload)
	SELECT u.id, u.scope, u.operation, u.key, u.gateway, u.fingerprint, greatest(u.not_before, now),
		coalesce(u.not_before > now, false),
		now AS created, greatest(u.not_before, now) AS since, now AS updated, u.deadline, u.batch, u."row", u.payload
	FROM clock, `

const inserting = ` WHERE u.until IS NULL OR now < u.until ON CONFLICT DO NOTHING RETURNING id, created, next_at, ''`

// promote moves up to $1 scheduled intents that are due to those that claims read. updated shows that they were due, for a
// clock that is set back before they are claimed, also within this statement.
const promote = `UPDATE` + intents + `AS t SET later = false, updated = greatest(t.next_at, clock_timestamp()) WHERE t.id = ANY (ARRAY (
		SELECT i.id FROM` + intents + `i WHERE` + sqlquery.Promotable + `AND i.next_at <= (SELECT clock_timestamp())
		ORDER BY i.next_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED))`

// inEffect are the holds that have not ended.
const inEffect = ` FROM` + sqlquery.Holds + `h WHERE` + sqlquery.InEffect

// isFree is a condition on a gateway, which follows it.
const isFree = ` NOT EXISTS (SELECT` + inEffect + `AND h.gateway = `

// clockHeld is clock with the gateways that are held, and whether there are holds of a provider.
const clockHeld = `SELECT clock_timestamp(), ARRAY(SELECT h.gateway` + inEffect + `),
	EXISTS (SELECT FROM` + waits + `h WHERE` + sqlquery.WaitInEffect + `)`

// dueShares is the queues d of a claim: see choose.
const dueShares = `WITH RECURSIVE w AS MATERIALIZED (
		SELECT h.gateway, h.scope FROM` + waits + `h WHERE` + sqlquery.WaitInEffect + `
		UNION ALL SELECT u.gateway COLLATE "C", u.scope COLLATE "C" FROM unnest($9::text[], $10::text[]) AS u(scope, gateway)),
	n(gateway) AS (
		(` + oneGateway + byGateway + `)
		UNION ALL SELECT (` + oneGateway + `AND i.gateway > n.gateway` + byGateway + `) FROM n WHERE n.gateway IS NOT NULL),
	g AS MATERIALIZED (
		SELECT n.gateway, coalesce(k.room, $5::bigint) AS room, coalesce(k.each, $5::bigint) AS each, coalesce(k.behind, '') AS behind
		FROM n LEFT JOIN unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) AS k(gateway, room, each, behind)
			ON k.gateway = n.gateway
		WHERE n.gateway IS NOT NULL AND coalesce(k.room, $5::bigint) > 0 AND` + isFree + `n.gateway)
			AND (n.gateway, '') NOT IN (SELECT w.gateway, w.scope FROM w)),
	d AS MATERIALIZED (SELECT g.gateway, g.room, l.scope, l.each, l.scopes, row_number() OVER () AS place FROM g CROSS JOIN LATERAL (
		WITH RECURSIVE a(scope) AS (
			(` + oneScope + `AND i.scope > g.behind` + byScope + `)
			UNION ALL SELECT (` + oneScope + `AND i.scope > a.scope` + byScope + `) FROM a WHERE a.scope IS NOT NULL),
		b(scope) AS (
			(` + oneScope + byScope + `)
			UNION ALL SELECT (` + oneScope + `AND i.scope > b.scope` + byScope + `) FROM b WHERE b.scope < g.behind),
		s(scope) AS (SELECT scope FROM a WHERE scope IS NOT NULL UNION ALL SELECT scope FROM b WHERE scope <= g.behind),
		r AS (SELECT s.scope, least(g.each,
			(SELECT h.room FROM unnest($6::text[], $7::text[], $8::bigint[]) AS h(scope, gateway, room)
				WHERE h.scope = s.scope AND h.gateway = g.gateway)) AS each FROM s OFFSET 0),
		f AS (SELECT scope, each FROM r WHERE each > 0 AND (g.gateway, r.scope) NOT IN (SELECT w.gateway, w.scope FROM w) AND (
				SELECT true FROM` + intents + `i WHERE` + sqlquery.Claimable + `AND i.gateway = g.gateway AND i.scope = r.scope
					ORDER BY i.next_at LIMIT 1)
			LIMIT g.room)
		SELECT scope, each, count(*) OVER () AS scopes FROM f) l)`

const (
	// lockDead locks dead workers, so that they cannot renew their lease meanwhile.
	lockDead = `SELECT w.id FROM` + workers + `w WHERE w.expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED`

	// orphanedWorkers are workers that hold intents and have no row.
	orphanedWorkers = `SELECT DISTINCT i.worker FROM` + intents + `i WHERE` + sqlquery.Held + `AND NOT EXISTS (
		SELECT FROM` + workers + `w WHERE w.id = i.worker)`

	deleteExpiredWorkers = `DELETE FROM` + workers + `w WHERE w.id = ANY ($1::text[]) AND w.expires_at <= clock_timestamp()
		AND NOT EXISTS (SELECT FROM` + intents + `i WHERE` + sqlquery.Held + `AND i.worker = w.id)`
)

const (
	eraseAttempts = sqlquery.EraseAttempts + `= ANY ($1::uuid[])`
	eraseLetters  = sqlquery.EraseLetters + `= ANY ($1::uuid[])`
)

// sweep deletes up to $2 intents that are older than $1.
const sweep = `WITH gone AS (
		DELETE FROM` + intents + `t WHERE t.id = ANY (ARRAY (
			SELECT i.id FROM` + intents + `i WHERE` + sqlquery.Final + `AND i.updated < (SELECT clock_timestamp() - $1::bigint` + micros + `)
			ORDER BY i.updated LIMIT $2::bigint FOR UPDATE SKIP LOCKED))
		RETURNING t.id),
	gone_attempts AS (DELETE FROM` + sqlquery.Attempts + `a WHERE a.intent IN (SELECT id FROM gone)),
	gone_letters AS (DELETE FROM` + sqlquery.Letters + `l WHERE l.intent IN (SELECT id FROM gone))
	SELECT count(*) FROM gone`

// texts are the statements with the names of the tables.
type texts struct {
	schema *pgkit.Schema
	end    string   // of each text
	filled sync.Map // by the text without names
}

// of returns the text with names.
func (t *texts) of(text string) string {
	known, ok := t.filled.Load(text)
	if !ok {
		known, _ = t.filled.LoadOrStore(text, t.schema.Fill(text)+t.end)
	}
	filled, _ := known.(string)
	return filled
}

// statement returns a statement that returns no rows, unless Scan is set.
func (t *texts) statement(text string, args ...any) *pgkit.Statement {
	return &pgkit.Statement{Text: t.of(text), Args: args}
}

// ourTerms are the terms of package sqlquery. A time that is compared with an index must be a SELECT: clock_timestamp()
// alone has another value for each row, so PostgreSQL would read all rows.
func ourTerms() []string {
	return []string{
		"{{now}}", "(SELECT clock_timestamp())", "{{locked}}", "FOR UPDATE SKIP LOCKED", "{{id}}", "i.id = $1::uuid",
		"{{by due}}", "", "{{by later}}", "", "{{by held}}", "", "{{by over}}", "", "{{by listed}}", "",
	}
}

package pgstore

import (
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// settings are those of the store's transactions. They make the planner use indexes, because
// its statistics are wrong for tables that fill and empty all the time. They also prevent
// compilation, and plans that were made for nearly empty tables.
const settings = `SELECT ` + pgkit.Durable + `, set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

// The numbers of durable.State in the statements below: 0, 1 and 4 are Claimable, 2 and
// 3 Held, 5 and 7 Final. They never change. The statements use them only to find rows:
// Decide says what is permitted.
const (
	claimable = ` i.state IN (0, 1, 4) AND NOT i.later `
	later     = ` i.state IN (0, 1, 4) AND i.later `
	held      = ` i.state IN (2, 3) `
	final     = ` i.state IN (5, 7) `

	intents  = ` {{schema}}durable_intent `
	attempts = ` {{schema}}durable_attempt `
	letters  = ` {{schema}}durable_letter `
	workers  = ` {{schema}}durable_worker `
	holds    = ` {{schema}}durable_hold `
	waits    = ` {{schema}}durable_provider_hold `

	theID = ` i.id = $1::uuid `

	// bare are a record's columns without payload, result and place.
	bareColumns = columns + `, NULL::bytea, ''::bytea, 0::bigint`
	bare        = `SELECT` + bareColumns + ` FROM` + intents + `i`

	micros = ` * interval '1 microsecond' `

	// byDueTime is the order within a queue: that of the index. Of intents that are due at the
	// same time, the oldest is first.
	byDueTime = ` ORDER BY i.next_at, i.seq `

	// oneGateway and oneScope find a gateway and a scope with claimable intents, due or not.
	// Each is a seek in the index, for any number of rows.
	oneGateway = `SELECT i.gateway FROM` + intents + `i WHERE` + claimable
	oneScope   = `SELECT i.scope FROM` + intents + `i WHERE` + claimable + `AND i.gateway = g.gateway `
	byGateway  = ` ORDER BY i.gateway LIMIT 1`
	byScope    = ` ORDER BY i.scope LIMIT 1`
)

// clock is the database's time.
const clock = `SELECT clock_timestamp()`

// heartbeat returns the time at which the lease begins.
const heartbeat = `INSERT INTO` + workers + `AS w (id, expires_at) VALUES ($1::text, clock_timestamp() + $2::bigint` + micros + `)
	ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at RETURNING w.expires_at - $2::bigint` + micros

// renewLeaseIfDue is heartbeat if a tenth of the lease is over. It returns the end of the lease.
// It does not write each time, because concurrent claims of one worker would wait for each
// other's commits on the worker's row.
const renewLeaseIfDue = `WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at, $2::bigint` + micros + `AS lease),
	there AS (SELECT w.expires_at FROM now, ` + workers + `w
		WHERE w.id = $1::text AND w.expires_at BETWEEN now.at + now.lease * 0.9 AND now.at + now.lease),
	extended AS (INSERT INTO` + workers + `AS w (id, expires_at)
		SELECT $1::text, now.at + now.lease FROM now WHERE NOT EXISTS (SELECT FROM there)
		ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at RETURNING w.expires_at)
	SELECT expires_at FROM there UNION ALL SELECT expires_at FROM extended`

// lock reads and locks the columns that Decide needs, in the order of the array.
const lock = `SELECT` + bareColumns + `
	FROM unnest($1::uuid[]) AS u(id) CROSS JOIN LATERAL (SELECT * FROM` + intents + `i WHERE i.id = u.id FOR UPDATE) i`

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

const find = `SELECT` + columns + `, i.payload, i.result, 0::bigint FROM` + intents + `i WHERE` + theID

const lockOne = find + ` AND` + isFree + `i.gateway) FOR UPDATE OF i SKIP LOCKED`

// A time that is compared with an index must be a SELECT: clock_timestamp() alone has another
// value for each row, so PostgreSQL would read all rows.

// promote moves up to $1 scheduled intents that are due to those that claims read.
const promote = `UPDATE` + intents + `AS t SET later = false WHERE t.id = ANY (ARRAY (
		SELECT i.id FROM` + intents + `i WHERE` + later + `AND i.next_at <= (SELECT clock_timestamp())
		ORDER BY i.next_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED))`

// inEffect are the holds that have not ended.
const inEffect = ` FROM` + holds + `h WHERE h.released_by = '' AND (h.until IS NULL OR h.until > clock_timestamp()) `

// isFree is a condition on a gateway, which follows it.
const isFree = ` NOT EXISTS (SELECT` + inEffect + `AND h.gateway = `

// clockHeld is clock with the gateways that are held, and whether there are holds of a provider.
const clockHeld = `SELECT clock_timestamp(), ARRAY(SELECT h.gateway` + inEffect + `),
	EXISTS (SELECT FROM` + waits + `h WHERE h.until > (SELECT clock_timestamp()))`

// choose selects up to $2 intents of each gateway $1, at most $3 of a scope. Each scope with due
// intents gets an equal share, and scopes after $4 are first. $5 is the limit for other gateways.
// $6 to $8 are the queues with a lower limit. $9 and $10 are queues that wait, in addition to
// the provider's holds.
const choose = `WITH RECURSIVE clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
	w AS MATERIALIZED (
		SELECT h.gateway, h.scope FROM` + waits + `h WHERE h.until > (SELECT now FROM clock)
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
				SELECT true FROM` + intents + `i WHERE` + claimable + `AND i.gateway = g.gateway AND i.scope = r.scope
					AND i.next_at <= (SELECT now FROM clock) ORDER BY i.next_at LIMIT 1)
			LIMIT g.room)
		SELECT scope, each, count(*) OVER () AS scopes FROM f) l)
	SELECT` + columns + `, i.payload, NULL::bytea, d.place FROM d CROSS JOIN LATERAL (
		SELECT * FROM` + intents + `i WHERE` + claimable + `AND i.gateway = d.gateway AND i.scope = d.scope
			AND i.next_at <= (SELECT now FROM clock)
		` + byDueTime + `LIMIT least(d.each, (d.room - 1) / d.scopes + 1) FOR UPDATE SKIP LOCKED) i`

// chooseMore selects more intents that were due at $7 in some queues, after those that choose
// selected.
const chooseMore = `SELECT` + columns + `, i.payload, NULL::bytea, o.place
	FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[])
		AS o(gateway, scope, next_at, seq, want, place)
	CROSS JOIN LATERAL (
		SELECT * FROM` + intents + `i WHERE` + claimable + `AND i.gateway = o.gateway AND i.scope = o.scope
			AND i.next_at <= $7::timestamptz AND (i.next_at, i.seq) > (o.next_at, o.seq)
		` + byDueTime + `LIMIT o.want FOR UPDATE SKIP LOCKED) i`

// dueQueries selects up to $2 status queries of each gateway $1.
const dueQueries = `SELECT` + columns + `, i.payload, NULL::bytea, 0::bigint
	FROM unnest($1::text[], $2::bigint[]) AS k(gateway, room)
	CROSS JOIN LATERAL (
		SELECT * FROM` + intents + `i WHERE i.state = 4 AND i.ask AND NOT i.later AND i.gateway = k.gateway
			AND i.next_at <= $3::timestamptz
		ORDER BY i.next_at LIMIT k.room FOR UPDATE SKIP LOCKED) i
	WHERE` + isFree + `k.gateway)`

const (
	// wait is a provider's hold. The one that ends later stays.
	wait = `INSERT INTO` + waits + `AS h (gateway, scope, since, until, note)
		VALUES ($1::text, $2::text, clock_timestamp(), $3::timestamptz, $4::text)
		ON CONFLICT (gateway, scope) DO UPDATE SET until = excluded.until, note = excluded.note,
			since = CASE WHEN h.until > clock_timestamp() THEN h.since ELSE excluded.since END
		WHERE h.until < excluded.until`

	// forgetWaits deletes the rows of holds that ended a day ago.
	forgetWaits = `DELETE FROM` + waits + `t WHERE (t.gateway, t.scope) IN (
		SELECT h.gateway, h.scope FROM` + waits + `h WHERE h.until < clock_timestamp() - interval '1 day' LIMIT 100 FOR UPDATE SKIP LOCKED)`

	currentWaits = `SELECT h.gateway, h.scope, h.since, h.until, h.note FROM` + waits + `h
		WHERE h.until > (SELECT clock_timestamp()) ORDER BY h.gateway, h.scope`

	hold = `INSERT INTO` + holds + `AS h (gateway, since, until, "by", note)
		VALUES ($1::text, clock_timestamp(), $2::timestamptz, $3::text, $4::text)
		ON CONFLICT (gateway) DO UPDATE SET until = excluded.until, "by" = excluded."by", note = excluded.note, released_by = '',
			since = CASE WHEN h.released_by = '' AND (h.until IS NULL OR h.until > clock_timestamp()) THEN h.since ELSE excluded.since END`

	release = `WITH person AS (
			UPDATE` + holds + `AS t SET released_by = $2::text
			WHERE t.gateway = $1::text AND EXISTS (SELECT` + inEffect + `AND h.gateway = t.gateway) RETURNING true),
		provider AS (DELETE FROM` + waits + `t WHERE t.gateway = $1::text AND t.until > clock_timestamp() RETURNING true)
		SELECT EXISTS (SELECT FROM person) OR EXISTS (SELECT FROM provider)`

	currentHolds = `SELECT h.gateway, h.since, h.until, h."by", h.note` + inEffect + `ORDER BY h.gateway`
)

// lost is true for intents of dead workers, and of workers without a row.
const lost = held + `AND NOT EXISTS (
	SELECT FROM` + workers + `w WHERE w.id = i.worker AND w.expires_at > clock_timestamp())`

const (
	// findLost reports whether there is anything to reap.
	findLost = `SELECT EXISTS (SELECT FROM` + workers + `w WHERE w.expires_at <= clock_timestamp())
		OR EXISTS (SELECT FROM` + intents + `i WHERE` + lost + `)`

	// lockDead locks dead workers, so that they cannot renew their lease meanwhile.
	lockDead = `SELECT w.id FROM` + workers + `w WHERE w.expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED`

	// orphanedWorkers are workers that hold intents and have no row.
	orphanedWorkers = `SELECT DISTINCT i.worker FROM` + intents + `i WHERE` + held + `AND NOT EXISTS (
		SELECT FROM` + workers + `w WHERE w.id = i.worker)`

	lockLost = bare + ` WHERE` + held + `AND i.worker = ANY ($1::text[]) LIMIT $2::bigint FOR UPDATE OF i SKIP LOCKED`

	deleteExpiredWorkers = `DELETE FROM` + workers + `w WHERE w.id = ANY ($1::text[]) AND w.expires_at <= clock_timestamp()
		AND NOT EXISTS (SELECT FROM` + intents + `i WHERE` + held + `AND i.worker = w.id)`
)

// The columns of an attempt: in durable_intent if it is the last one, and in the journal.
const (
	lastAttempt = ` i.a_n, i.a_kind, i.a_epoch, i.a_key, i.a_worker, i.a_sent, i.a_finished, i.a_class, i.a_code, i.a_status,
		i.a_reference, i.a_error `
	oneAttempt = ` n, kind, epoch, key, worker, sent_at, finished_at, class, code, status, reference, error `

	// keepAttempts copies the last attempts to the journal.
	keepAttempts = `INSERT INTO` + attempts + `(intent,` + oneAttempt + `)
		SELECT i.id,` + lastAttempt + `FROM unnest($1::uuid[]) AS u(id) JOIN` + intents + `i ON i.id = u.id WHERE i.a_n > 0`

	// journal returns a row without an attempt if the intent exists and has none.
	journal = `SELECT a.* FROM` + intents + `i LEFT JOIN LATERAL (
			SELECT` + oneAttempt + `FROM` + attempts + `WHERE intent = i.id UNION ALL SELECT` + lastAttempt + `WHERE i.a_n > 0) a ON true
		WHERE` + theID + `ORDER BY a.n`
)

// The texts that an erasure removes. The texts of the last attempt are replaced by those of the
// erasure, which are empty. 'erased' is driver.NoteErased.
const (
	eraseAttempts = `UPDATE` + attempts + `SET error = '' WHERE intent = ANY ($1::uuid[]) AND error <> ''`
	eraseLetters  = `UPDATE` + letters + `SET note = '' WHERE intent = ANY ($1::uuid[]) AND note NOT IN ('', 'erased')`
)

// chosenLetters is a statement without its conditions.
const chosenLetters = `SELECT i.scope, i.operation, i.key, l.n, l.gateway, l.batch, l."row", l.reason, l.class, l.code, l.doubt,
		l.attempts, l.dead_at, l.redriven_at, l."by", l.note
	FROM` + letters + `l JOIN` + intents + `i ON i.id = l.intent WHERE `

// stats returns a row for each state, one for the dead intents in doubt, and one for the workers and the time.
const stats = `WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
	SELECT i.state, count(*), count(*) FILTER (WHERE i.next_at <= (SELECT now FROM clock)), min(i.next_at)
		FROM` + intents + `i WHERE` + claimable + `GROUP BY 1
	UNION ALL SELECT i.state, count(*), count(*) FILTER (WHERE i.next_at <= (SELECT now FROM clock)), min(i.next_at)
		FROM` + intents + `i WHERE` + later + `GROUP BY 1
	UNION ALL SELECT CASE WHEN EXISTS (SELECT FROM` + workers + `w WHERE w.id = i.worker AND w.expires_at > (SELECT now FROM clock))
		THEN i.state ELSE 4 END, count(*), 0, NULL FROM` + intents + `i WHERE` + held + `GROUP BY 1
	UNION ALL SELECT i.state, count(*), 0, NULL FROM` + intents + `i WHERE i.state = 6 AND i.state NOT IN (2, 3) GROUP BY 1
	UNION ALL SELECT i.state, count(*), 0, NULL FROM` + intents + `i WHERE` + final + `GROUP BY 1
	UNION ALL SELECT -2, count(*), 0, NULL FROM` + intents + `i WHERE i.state = 6 AND i.state NOT IN (2, 3) AND i.doubt
	UNION ALL SELECT -1, (SELECT count(*) FROM` + workers + `w WHERE w.expires_at > clock.now), 0, clock.now FROM clock`

// sweep deletes up to $2 intents that are older than $1.
const sweep = `WITH gone AS (
		DELETE FROM` + intents + `t WHERE t.id = ANY (ARRAY (
			SELECT i.id FROM` + intents + `i WHERE` + final + `AND i.updated < (SELECT clock_timestamp() - $1::bigint` + micros + `)
			ORDER BY i.updated LIMIT $2::bigint FOR UPDATE SKIP LOCKED))
		RETURNING t.id),
	gone_attempts AS (DELETE FROM` + attempts + `a WHERE a.intent IN (SELECT id FROM gone)),
	gone_letters AS (DELETE FROM` + letters + `l WHERE l.intent IN (SELECT id FROM gone))
	SELECT count(*) FROM gone`

// statements are the texts with the names of the tables, and the columns that they write.
type statements struct {
	heartbeat, renewLeaseIfDue, lock, find, lockOne, promote, choose, chooseMore string
	clockHeld, hold, release, holds, wait, forgetWaits, waits, dueQueries        string
	findLost, lockDead, orphanedWorkers, lockLost, deleteExpiredWorkers          string
	journal, letters, stats, sweep                                               string
	insert, insertOne, update, take, settle, done                                string
	beginAttempts, endAttempts, keepAttempts                                     string
	openLetters, openSettled, closeLetters                                       string
	eraseAttempts, eraseLetters, intents                                         string
	lockJobs, sameJob, addJob, newestJobs                                        string
	findJob, lockJob, takeJob, updateJob                                         string

	table string // the intents'

	inserted, updated, taken, settled, doneWith []field[*row]
	begun, ended                                []field[attempt]
	opened, closed                              []field[letter]
}

func newStatements(s *pgkit.Schema) *statements {
	is := &statements{
		heartbeat: heartbeat, renewLeaseIfDue: renewLeaseIfDue, lock: lock, find: find, lockOne: lockOne, promote: promote, choose: choose, chooseMore: chooseMore,
		clockHeld: clockHeld, hold: hold, release: release, holds: currentHolds,
		wait: wait, forgetWaits: forgetWaits, waits: currentWaits, dueQueries: dueQueries,
		findLost: findLost, lockDead: lockDead, orphanedWorkers: orphanedWorkers, lockLost: lockLost, deleteExpiredWorkers: deleteExpiredWorkers,
		journal: journal, letters: chosenLetters, stats: stats, sweep: sweep,
		inserted: inserted(), updated: updated(), taken: taken(), settled: settled(), doneWith: done(),
		begun: begun(), ended: ended(), opened: opened(), closed: closed(),
		eraseAttempts: eraseAttempts, eraseLetters: eraseLetters, intents: intents + `i`,
		lockJobs: lockJobs, sameJob: sameJob, addJob: addJob, newestJobs: newestJobs,
		findJob: findJob, lockJob: lockJob, takeJob: takeJob, updateJob: updateJob,
	}
	is.insert = insertNow + unnested(is.inserted) + inserting
	is.insertOne = insertNow + single(is.inserted) + inserting
	is.update = update[*row]{table: intents, fields: is.updated, n: 1, kept: []string{"payload", "result"}}.text()
	is.take = update[*row]{table: intents, fields: is.taken, n: 1, constant: claimedNow}.text()
	// Only an intent that is held has a worker, so the fields show that it is still held.
	is.settle = update[*row]{table: intents, fields: is.settled, n: 3, constant: over}.text() + ` RETURNING t.id`
	is.done = update[*row]{table: intents, fields: is.doneWith, n: 3, constant: success}.text() + ` RETURNING t.id`
	is.beginAttempts = update[attempt]{table: intents, fields: is.begun, n: 1}.text()
	is.endAttempts = update[attempt]{table: intents, fields: is.ended, n: 2}.text()
	is.keepAttempts = keepAttempts
	is.openLetters = insertInto(letters, is.opened)
	is.openSettled = is.openLetters + ` WHERE EXISTS (SELECT FROM` + intents + `i WHERE i.id = u.intent AND i.state = 6 AND i.letter = u.n)
		ON CONFLICT DO NOTHING`
	is.closeLetters = update[letter]{table: letters, fields: is.closed, n: 2}.text()
	for _, text := range is.texts() {
		*text = s.Fill(*text)
	}
	is.table = s.Fill("{{schema}}durable_intent")
	return is
}

func (is *statements) texts() []*string {
	return []*string{
		&is.heartbeat, &is.renewLeaseIfDue, &is.lock, &is.find, &is.lockOne, &is.promote, &is.choose, &is.chooseMore,
		&is.clockHeld, &is.hold, &is.release, &is.holds, &is.wait, &is.forgetWaits, &is.waits, &is.dueQueries,
		&is.findLost, &is.lockDead, &is.orphanedWorkers, &is.lockLost, &is.deleteExpiredWorkers,
		&is.journal, &is.letters, &is.stats, &is.sweep,
		&is.insert, &is.insertOne, &is.update, &is.take, &is.settle, &is.done,
		&is.beginAttempts, &is.endAttempts, &is.keepAttempts, &is.openLetters, &is.openSettled, &is.closeLetters,
		&is.eraseAttempts, &is.eraseLetters, &is.intents,
		&is.lockJobs, &is.sameJob, &is.addJob, &is.newestJobs, &is.findJob, &is.lockJob, &is.takeJob, &is.updateJob,
	}
}

// joined are the same for transactions of callers, with and without a notification. Their texts
// are others: a plan that was made without our settings must not be kept for those with them.
func (is *statements) joined(notifies bool) *statements {
	others := *is
	if notifies {
		others.insert += notifyInserted
		others.insertOne += notifyInserted
		others.update += notifyUpdated
	}
	for _, text := range others.texts() {
		*text += ` /* within */`
	}
	return &others
}

// What is the same of each attempt that begins, that ends, and that succeeded: Decide says so.
const (
	claimedNow = `later = false, updated = u.taken_at, a_n = u.generation, a_kind = CASE u.state WHEN 3 THEN 2 ELSE 1 END,
		a_epoch = u.epoch, a_worker = u.worker, a_sent = u.taken_at, a_finished = NULL, a_class = 0, a_code = '', a_status = 0,
		a_reference = '', a_error = ''`

	over = `worker = '', a_finished = u.updated, a_class = u.class, a_code = u.code`

	success = `worker = '', a_finished = u.updated, a_class = 1, a_code = u.code, a_reference = u.reference,
		state = 5, later = false, doubt = false, ask = false, class = 1`
)

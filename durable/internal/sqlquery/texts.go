package sqlquery

// The numbers of durable.State in the queries: 0, 1 and 4 are Claimable, 2 and 3 Held, 5 and 7 Final. They never change. The
// queries use them only to find rows: durable.Decide says what is permitted. A partial index is used only if a query has the
// condition of the index.
const (
	// Claimable intents are due, also if the clock was set back since.
	Claimable = ` i.state IN (0, 1, 4) AND NOT i.later `
	Later     = ` i.state IN (0, 1, 4) AND i.later `
	Held      = ` i.state IN (2, 3) `
	Final     = ` i.state IN (5, 7) `
	listed    = ` i.state NOT IN (2, 3) `

	// Suspect is a condition on a claimable intent: durable.Record.Suspect. Such an intent stays later, so the queries of what
	// is due do not find it. Promotable intents become due with their time.
	Suspect    = Later + `AND i.lost >= 3 `
	Promotable = Later + `AND i.lost < 3 `

	Intents  = ` {{schema}}durable_intent `
	Attempts = ` {{schema}}durable_attempt `
	Letters  = ` {{schema}}durable_letter `
	Workers  = ` {{schema}}durable_worker `
	Holds    = ` {{schema}}durable_hold `
	Waits    = ` {{schema}}durable_provider_hold `
	jobs     = ` {{schema}}durable_job `

	// InEffect is a condition on a person's hold h.
	InEffect = ` h.released_by = '' AND (h.until IS NULL OR h.until > {{now}}) `

	// Clock is the database's time.
	Clock = `SELECT {{now}}`

	// WaitInEffect is a condition on a provider's hold h: durable.Hold.waits.
	WaitInEffect = ` h.until > {{now}} AND h.since <= {{now}} `

	// CurrentWaits are the providers' holds.
	CurrentWaits = `SELECT h.gateway, h.scope, h.since, h.until, h.note FROM` + Waits + `h
		WHERE` + WaitInEffect + `ORDER BY h.gateway, h.scope`

	// findLost reports whether there may be anything to reap: a dead worker, or an intent of one without a row.
	findLost = `SELECT EXISTS (SELECT 1 FROM` + Workers + `w WHERE w.expires_at <= {{now}} OR` + renewedLater + `)
		OR EXISTS (SELECT 1 FROM` + Intents + `i WHERE` + Held + `AND NOT EXISTS (
			SELECT 1 FROM` + Workers + `w WHERE w.id = i.worker AND w.expires_at > {{now}}))`

	// renewedLater is a condition on a worker w that renewed its lease in the future: the clock was set back since.
	renewedLater = ` w.renewed > {{now}} `

	// RestartLeases lets their leases begin anew, so that those of dead workers end.
	RestartLeases = `WITH c AS MATERIALIZED (SELECT {{now}} AS now)
		UPDATE` + Workers + `AS w SET expires_at = w.expires_at - (w.renewed - c.now), renewed = c.now FROM c WHERE w.renewed > c.now`

	// EraseAttempts and EraseLetters, before a condition on intent, remove the texts that an erasure removes, but for those
	// of the last attempt: the erasure's own attempt replaces them. 'erased' is durable.NoteErased.
	EraseAttempts = `UPDATE` + Attempts + `SET error = '' WHERE error <> '' AND intent `
	EraseLetters  = `UPDATE` + Letters + `SET note = '' WHERE note NOT IN ('', 'erased') AND intent `
)

const (
	setHold = `INSERT INTO` + Holds + `AS h (gateway, since, until, "by", note, released_by)
		VALUES ($1::text, {{now}}, $2::timestamptz, $3::text, $4::text, '')
		ON CONFLICT (gateway) DO UPDATE SET until = excluded.until, "by" = excluded."by", note = excluded.note, released_by = '',
			since = CASE WHEN` + InEffect + `THEN h.since ELSE excluded.since END`
	releaseHold = `UPDATE` + Holds + `AS h SET released_by = $2::text WHERE h.gateway = $1::text AND` + InEffect + `RETURNING 1`

	currentHolds = `SELECT h.gateway, h.since, h.until, h."by", h.note FROM` + Holds + `h WHERE` + InEffect + `ORDER BY h.gateway`

	// setWait is a provider's hold from $3 on. The beginning is not read here, because the clock may have been set since the end was
	// computed. The hold that ends later stays, unless it begins in the future and has no effect. It may begin after $3: then another
	// process has stored it meanwhile.
	setWait = `INSERT INTO` + Waits + `AS h (gateway, scope, since, until, note)
		VALUES ($1::text, $2::text, $3::timestamptz, $4::timestamptz, $5::text)
		ON CONFLICT (gateway, scope) DO UPDATE SET until = excluded.until, note = excluded.note,
			since = CASE WHEN excluded.since BETWEEN h.since AND h.until THEN h.since ELSE excluded.since END
		WHERE h.until < excluded.until OR h.since > {{now}}`
	releaseWaits = `DELETE FROM` + Waits + `AS h WHERE h.gateway = $1::text AND` + WaitInEffect + `RETURNING 1`
	forgetWaits  = `DELETE FROM` + Waits + `WHERE (gateway, scope) IN (
		SELECT h.gateway, h.scope FROM` + Waits + `h WHERE h.until < $1::timestamptz LIMIT 100 {{locked}})`
)

const (
	// addJob finds an open job with an equal filter.
	addJob = `INSERT INTO` + jobs + `(open, filter, job) VALUES (true, $1::text, $2::text)
		ON CONFLICT (filter) WHERE open DO UPDATE SET open = true RETURNING id, job`
	newestJobs = `SELECT id, job FROM` + jobs + `ORDER BY id DESC LIMIT $1::bigint`
	findJob    = `SELECT EXISTS (SELECT 1 FROM` + jobs + `WHERE open)`
	takeJob    = `SELECT id, job FROM` + jobs + `WHERE open ORDER BY id LIMIT 1 {{locked}}`
	updateJob  = `UPDATE` + jobs + `SET open = $2::boolean, job = $3::text WHERE id = $1::bigint`

	// lockJob waits for a worker that has the job.
	lockJob = `UPDATE` + jobs + `SET open = open WHERE id = $1::bigint RETURNING id, job`
)

// rebase moves up to $1 intents that wait for a retry and were changed in the future, as durable.Decide does.
const rebase = `WITH c AS MATERIALIZED (SELECT {{now}} AS now)
	UPDATE` + Intents + `AS t SET next_at = t.next_at - (t.updated - c.now), first_at = t.first_at - (t.updated - c.now),
		last_at = t.last_at - (t.updated - c.now), taken_at = t.taken_at - (t.updated - c.now), since = t.since - (t.updated - c.now),
		updated = c.now
	FROM c WHERE t.id IN (
		SELECT i.id FROM` + Intents + `i {{by later}} WHERE` + Later + `AND i.state IN (1, 4) AND i.updated > {{now}} LIMIT $1::bigint {{locked}})
	RETURNING 1`

// stats has a row for each state, one for the dead intents in doubt (-2), and one for the workers and the time (-1). It
// counts in indexes that have nothing else.
const stats = `SELECT i.state, count(*), count(*) FILTER (WHERE i.next_at <= {{now}}), min(i.next_at)
		FROM` + Intents + `i {{by due}} WHERE` + Claimable + `GROUP BY i.state
	UNION ALL SELECT i.state, count(*), count(*) FILTER (WHERE i.next_at <= {{now}}), min(i.next_at)
		FROM` + Intents + `i {{by later}} WHERE` + Later + `GROUP BY i.state
	UNION ALL SELECT CASE WHEN EXISTS (SELECT 1 FROM` + Workers + `w WHERE w.id = i.worker AND w.expires_at > {{now}})
		THEN i.state ELSE 4 END, count(*), 0, NULL FROM` + Intents + `i {{by held}} WHERE` + Held + `GROUP BY 1
	UNION ALL SELECT i.state, count(*), 0, NULL FROM` + Intents + `i {{by listed}} WHERE i.state = 6 AND` + listed + `GROUP BY i.state
	UNION ALL SELECT i.state, count(*), 0, NULL FROM` + Intents + `i {{by over}} WHERE` + Final + `GROUP BY i.state
	UNION ALL SELECT -2, count(*), 0, NULL FROM` + Intents + `i {{by listed}} WHERE i.state = 6 AND` + listed + `AND i.doubt
	UNION ALL SELECT -1, count(*), 0, {{now}} FROM` + Workers + `w WHERE w.expires_at > {{now}}`

// find reads an intent, and journal its attempts. One row of journal is the last attempt, with the number 0 if there is none.
func find() string {
	return `SELECT ` + Names("i.", IntentColumns) + `, i.payload, i.result FROM` + Intents + `i WHERE {{id}}`
}

func journal() string {
	return `SELECT ` + Names("", AttemptColumns) + ` FROM` + Attempts + `WHERE intent = (SELECT i.id FROM` + Intents + `i WHERE {{id}})
		UNION ALL SELECT ` + Names("i.a_", AttemptColumns) + ` FROM` + Intents + `i WHERE {{id}}`
}

// Texts are the statements of Verbs that have always the same text.
func Texts() []string {
	return []string{
		Clock, CurrentWaits, findLost, setHold, releaseHold, currentHolds, setWait, releaseWaits, forgetWaits,
		addJob, newestJobs, findJob, takeJob, updateJob, lockJob, rebase, RestartLeases, stats, find(), journal(),
	}
}

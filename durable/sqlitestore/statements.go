package sqlitestore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
)

// The clock is SQLite's, which knows milliseconds. round, because the seconds are a
// float, and 0.123 may be a little less.
const now = ` (CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000) `

// ourTerms replaces the terms of package sqlquery.
var ourTerms = strings.NewReplacer( //nolint:gochecknoglobals // constant
	"{{schema}}", "", "{{now}}", now, "{{locked}}", "", "{{id}}", "i.scope = ?1 AND i.operation = ?2 AND i.key = ?3",
	"{{by due}}", "INDEXED BY durable_intent_due", "{{by later}}", "INDEXED BY durable_intent_later",
	"{{by held}}", "INDEXED BY durable_intent_held", "{{by over}}", "INDEXED BY durable_intent_over",
	"{{by listed}}", "INDEXED BY durable_intent_listed",
)

var placeholder = regexp.MustCompile(`\$(\d+)::\w+`)

// fill returns SQLite's text of a statement.
func fill(text string) string { return placeholder.ReplaceAllString(ourTerms.Replace(text), "?$1") }

const (
	intents = sqlquery.Intents
	due     = intents + `i WHERE` + sqlquery.Claimable

	// inTurn is the order within a queue: that of the index. Of intents that are due at the
	// same time, the oldest is first.
	inTurn = ` ORDER BY i.next_at, i.state, i.id `

	// firstOf is the intent that is due longest in the scope of s; ?2 is the gateway.
	firstOf = ` (SELECT i.id FROM` + due + `AND i.gateway = ?2 AND i.scope = s.scope` + inTurn + `LIMIT 1) `

	// nextScope is the next scope after that of s with claimable intents, due or not. It is
	// a seek in the index, for any number of rows.
	nextScope = ` SELECT (SELECT min(i.scope) FROM` + due + `AND i.gateway = ?2 AND i.scope > s.scope)
		FROM s WHERE s.scope IS NOT NULL `

	lost = sqlquery.Held + `AND NOT EXISTS (SELECT 1 FROM durable_worker w WHERE w.id = i.worker AND w.expires_at > {{now}})`
)

const (
	closeLetter   = `UPDATE durable_letter SET redriven_at = ?3, "by" = ?4, note = ?5 WHERE intent = ?1 AND n = ?2`
	eraseAttempts = sqlquery.EraseAttempts + `= ?1`
	eraseLetters  = sqlquery.EraseLetters + `= ?1`

	beat = `INSERT INTO durable_worker (id, renewed, expires_at) VALUES (?1, ?2, ?3)
		ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, renewed = excluded.renewed`
	forgetDead = `DELETE FROM durable_worker WHERE expires_at <= {{now}}`

	heldGateways = `SELECT h.gateway FROM durable_hold h WHERE` + sqlquery.InEffect

	// promote moves up to ?2 scheduled intents that are due at ?1 to those that claims read. updated shows that they were due, for
	// a clock that is set back before they are claimed.
	promote = `UPDATE durable_intent SET later = 0, updated = ?1 WHERE id IN (
		SELECT i.id FROM` + intents + `i WHERE` + sqlquery.Promotable + `AND i.next_at <= ?1 ORDER BY i.next_at, i.state, i.id LIMIT ?2)`

	// dueGateways are the gateways with claimable intents. Each is a seek in the index.
	dueGateways = `WITH RECURSIVE g(gateway) AS (
			SELECT min(i.gateway) FROM` + due + `
			UNION ALL SELECT (SELECT min(i.gateway) FROM` + due + `AND i.gateway > g.gateway)
			FROM g WHERE g.gateway IS NOT NULL)
		SELECT gateway FROM g WHERE gateway IS NOT NULL`

	findOver = `SELECT EXISTS (SELECT 1 FROM` + intents + `i WHERE` + sqlquery.Final + `AND i.updated < {{now}} - ?1)`
)

// The statements of Sweep, in their order. All find the same intents: older than ?1, at most ?2.
const (
	whatIsOver = ` IN (SELECT i.id FROM` + intents + `i WHERE` + sqlquery.Final + `AND i.updated < ?1
		ORDER BY i.updated, i.state, i.id LIMIT ?2)`

	sweepAttempts = `DELETE FROM durable_attempt WHERE intent` + whatIsOver
	sweepLetters  = `DELETE FROM durable_letter WHERE intent` + whatIsOver
	sweepIntents  = `DELETE FROM durable_intent WHERE id` + whatIsOver
)

// lockSQL takes the write lock and does nothing else.
const lockSQL = `UPDATE durable_intent SET state = state WHERE false`

// The statements with the columns of package sqlquery.
//
//nolint:gochecknoglobals // constants
var (
	columns = `SELECT ` + sqlquery.Names("i.", sqlquery.IntentColumns)
	whole   = columns + `, i.payload, i.id FROM`
	bare    = columns + `, x'', i.id FROM`

	// find reads the columns of a claim, load those that Decide needs.
	find = whole + intents + `i WHERE {{id}}`
	load = bare + intents + `i WHERE {{id}}`

	loadLost = bare + intents + `i WHERE` + lost + ` LIMIT ?1`

	dueQueries = whole + intents + `i WHERE i.state = 4 AND i.ask AND NOT i.later AND i.gateway = ?1
		ORDER BY i.next_at LIMIT ?2`

	// dueSuspects are some suspects that are due at ?1.
	dueSuspects = whole + intents + `i WHERE` + sqlquery.Suspect + `AND i.next_at <= ?1 ORDER BY i.next_at LIMIT 100`

	firsts = whole + ` s CROSS JOIN durable_intent i ON i.id =` + firstOf

	// dueAfter is the oldest due intent of a gateway in each scope after ?1, and dueUntil in the other scopes.
	dueAfter = `WITH RECURSIVE s(scope) AS (
		SELECT min(i.scope) FROM` + due + `AND i.gateway = ?2 AND i.scope > ?1 UNION ALL` + nextScope + `)` + firsts
	dueUntil = `WITH RECURSIVE s(scope) AS (
		SELECT min(i.scope) FROM` + due + `AND i.gateway = ?2 UNION ALL` + nextScope + `AND s.scope < ?1)` + firsts + `WHERE s.scope <= ?1`

	// dueMore are the other due intents of one scope.
	dueMore = whole + due + `AND i.gateway = ?1 AND i.scope = ?2` + inTurn + `LIMIT ?3 OFFSET ?4`

	// mutable are the columns that can change, and taken those that a claim changes.
	mutable = sqlquery.Without(sqlquery.IntentColumns, "scope operation key created")
	taken   = sqlquery.Named(sqlquery.IntentColumns, sqlquery.Taken+" updated")
	ended   = sqlquery.Named(sqlquery.AttemptColumns, sqlquery.EndOfAttempt)

	insert = insertInto("durable_intent", sqlquery.Names("", sqlquery.IntentColumns)+", later, payload") + ` ON CONFLICT DO NOTHING`

	keepAttempt = `INSERT INTO durable_attempt (intent, ` + sqlquery.Names("", sqlquery.AttemptColumns) + `)
		SELECT i.id, ` + sqlquery.Names("i.a_", sqlquery.AttemptColumns) + ` FROM` + intents + `i WHERE i.id = ?1 AND i.a_n > 0`
	openLetter = insertInto("durable_letter", "intent, "+sqlquery.Names("", sqlquery.LetterColumns))

	// update writes a record, begin also a new attempt of it, and end the end of the last one. take is the begin of a claim.
	update = updateWith(mutable, nil)
	begin  = updateWith(mutable, sqlquery.AttemptColumns)
	take   = updateWith(taken, sqlquery.AttemptColumns)
	end    = updateWith(mutable, ended)
)

// insertInto is an INSERT of these columns.
func insertInto(table, columns string) string {
	values := make([]string, strings.Count(columns, ",")+1)
	for i := range values {
		values[i] = fmt.Sprintf("?%d", i+1)
	}
	return "INSERT INTO " + table + " (" + columns + ") VALUES (" + strings.Join(values, ", ") + ")"
}

// updateWith is an UPDATE of columns of the intent ?1, and of its last attempt. Payload and result are unchanged if they are
// NULL.
func updateWith(intent []sqlquery.Column[durable.Record], attempt []sqlquery.Column[durable.Attempt]) string {
	text, n := `UPDATE durable_intent SET payload = coalesce(?2, payload), result = coalesce(?3, result), later = ?4`, 5
	set := func(prefix, name string) {
		text += fmt.Sprintf(", %s%s = ?%d", prefix, name, n)
		n++
	}
	for _, c := range intent {
		set("", c.Name)
	}
	for _, c := range attempt {
		set("a_", c.Name)
	}
	return text + ` WHERE id = ?1`
}

// prepared are the statements that are prepared.
func prepared() []string {
	return slices.Concat(sqlquery.Texts(), []string{
		find, load, insert, update, begin, take, end, keepAttempt, openLetter, closeLetter, eraseAttempts, eraseLetters,
		beat, forgetDead, heldGateways, promote, dueGateways, dueQueries, dueSuspects, dueAfter, dueUntil, dueMore, loadLost, findOver,
	})
}

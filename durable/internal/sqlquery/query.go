// Package sqlquery has the queries by which the SQL stores of package durable list intents
// and dead letters. In them i is the table of intents, and l that of dead letters.
package sqlquery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
)

// Dialect is what differs between databases.
type Dialect struct {
	// Param returns the placeholder of the n-th argument, counted from 1.
	Param func(n int, value any) string

	// Time returns the argument for a time, which has whole microseconds.
	Time func(time.Time) any

	// From returns the FROM clause for intents that are held, or for the others by the index
	// on state and created. With byID the whole ID is given.
	From func(held, byID bool) string
}

// The partial indexes are used only if a condition repeats theirs.
const (
	held   = "i.state IN (2, 3)"
	listed = "i.state NOT IN (2, 3)"
)

func condition(isHeld bool) string {
	if isHeld {
		return held
	}
	return listed
}

// allStates are the states of an empty Filter.States.
var allStates = []driver.State{ //nolint:gochecknoglobals // constant
	driver.StatePending, driver.StateWaiting, driver.StateSending, driver.StateQuerying,
	driver.StateUnknown, driver.StateDone, driver.StateDead, driver.StateCanceled,
}

func statesOf(chosen []driver.State) []driver.State {
	if len(chosen) == 0 {
		return allStates
	}
	return chosen
}

// DeadLetters returns the conditions, order and limit of Store.DeadLetters.
func (d Dialect) DeadLetters(f *driver.Filter, after *driver.DeadLetter, limit int) (tail string, args []any) {
	q := query{Dialect: d}
	q.filter(f, "l", "l.dead_at")
	if !f.IncludeResolved {
		q.where = append(q.where, "l.redriven_at IS NULL")
	}
	var behind []any
	if after != nil {
		behind = []any{d.Time(after.DeadAt), after.ID.Scope, after.ID.Operation, after.ID.Key, after.Number}
	}
	return q.page([]string{"l.dead_at", "i.scope", "i.operation", "i.key", "l.n"}, f.NewestFirst, behind, limit)
}

// Intents returns the query of Store.Intents for these columns. It is a limited query for
// each state, so that each reads a page of the index and not more.
func (d Dialect) Intents(columns string, f *driver.Filter, after *driver.Record, limit int) (text string, args []any) {
	q := query{Dialect: d}
	q.filter(f, "i", "i.created")
	var behind []any
	if after != nil {
		behind = []any{d.Time(after.CreatedAt), after.ID.Scope, after.ID.Operation, after.ID.Key}
	}
	tail, args := q.page([]string{"i.created", "i.scope", "i.operation", "i.key"}, f.NewestFirst, behind, limit)
	byID := f.Scope != "" && f.Operation != "" && f.Key != ""
	var parts []string
	for _, state := range slices.Compact(slices.Sorted(slices.Values(statesOf(f.States)))) {
		parts = append(parts, fmt.Sprintf("SELECT * FROM (SELECT %s FROM %s WHERE i.state = %d AND %s AND %s) AS s%d",
			columns, d.From(state.Held(), byID), state, condition(state.Held()), tail, state))
	}
	if len(parts) == 1 {
		return parts[0], args
	}
	_, order, _ := strings.Cut(tail, " ORDER BY ")
	return strings.Join(parts, " UNION ALL ") + " ORDER BY " + strings.ReplaceAll(order, "i.", ""), args
}

// Counts returns the query of Store.Counts: state, gateway, scope and number.
func (d Dialect) Counts(states []driver.State) string {
	numbers := make([]string, 0, len(allStates))
	for _, state := range statesOf(states) {
		numbers = append(numbers, strconv.Itoa(int(state)))
	}
	part := func(isHeld bool) string {
		return "SELECT i.state, i.gateway, i.scope, count(*) FROM " + d.From(isHeld, false) + " WHERE " + condition(isHeld) +
			" AND i.state IN (" + strings.Join(numbers, ", ") + ") GROUP BY i.state, i.gateway, i.scope"
	}
	return part(true) + " UNION ALL " + part(false)
}

// query is one that is built.
type query struct {
	Dialect

	where []string
	args  []any
}

// add adds a condition in which each @ stands for a value.
func (q *query) add(condition string, values ...any) {
	for _, value := range values {
		q.args = append(q.args, value)
		condition = strings.Replace(condition, "@", q.Param(len(q.args), value), 1)
	}
	q.where = append(q.where, condition)
}

// filter adds the conditions of Filter.Matches for a table. at is its column with the time.
func (q *query) filter(f *driver.Filter, table, at string) {
	q.where = append(q.where, "true")
	for _, each := range [...]struct{ column, value string }{
		{"i.scope", f.Scope}, {"i.operation", f.Operation}, {"i.key", f.Key},
		{table + ".gateway", f.Gateway}, {table + ".batch", f.Batch}, {table + ".code", f.Code}, {table + ".reason", f.Reason},
	} {
		if each.value != "" {
			q.add(each.column+" = @", each.value)
		}
	}
	if !f.From.IsZero() {
		q.add(at+" >= @", q.Time(Ceil(f.From)))
	}
	if !f.Until.IsZero() {
		q.add(at+" < @", q.Time(Ceil(f.Until)))
	}
}

// Ceil is the first microsecond that is not before t.
func Ceil(t time.Time) time.Time { return t.Add(time.Microsecond - 1).Truncate(time.Microsecond) }

// page returns the conditions, the order and the limit of a page behind these values.
func (q *query) page(order []string, newestFirst bool, behind []any, limit int) (tail string, args []any) {
	operator, direction := " >", ""
	if newestFirst {
		operator, direction = " <", " DESC"
	}
	if behind != nil {
		q.add(order[0]+operator+"= @", behind[0]) // for the index
		q.add("("+strings.Join(order, ", ")+")"+operator+" (@"+strings.Repeat(", @", len(order)-1)+")", behind...)
	}
	q.args = append(q.args, int64(limit))
	return strings.Join(q.where, " AND ") + " ORDER BY " + strings.Join(order, direction+", ") + direction +
		" LIMIT " + q.Param(len(q.args), int64(limit)), q.args
}

// AddState adds a row of the statement of Stats. A state of -2 is the number of dead intents in
// doubt, and -1 that of workers, with the time.
func AddState(all *driver.Stats, state, n, due int, at time.Time) {
	switch {
	case state == -2:
		all.DeadInDoubt = n
		return
	case state < 0:
		all.Workers, all.Now = n, at
		return
	case due > 0 && (all.Oldest.IsZero() || at.Before(all.Oldest)):
		all.Oldest = at
	}
	all.Due += due
	all.States[driver.State(state)] += n
}

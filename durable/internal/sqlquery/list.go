package sqlquery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
)

// statesOf returns the chosen states, or all if none is chosen.
func statesOf(chosen []durable.State) []durable.State {
	if len(chosen) > 0 {
		return chosen
	}
	var all []durable.State
	for state := durable.StatePending; state <= durable.StateCanceled; state++ {
		all = append(all, state)
	}
	return all
}

// DeadLetters returns the query of Store.DeadLetters: LetterColumns, and the intent's ID.
func DeadLetters(f *durable.Filter, after *durable.DeadLetter, limit int) (text string, args []any) {
	var q query
	q.filter(f, "l", "l.dead_at")
	if !f.IncludeResolved {
		q.where = append(q.where, "l.redriven_at IS NULL")
	}
	var behind []any
	if after != nil {
		behind = []any{after.DeadAt, after.ID.Scope, after.ID.Operation, after.ID.Key, after.Number}
	}
	tail, args := q.page([]string{"l.dead_at", "i.scope", "i.operation", "i.key", "l.n"}, f.NewestFirst, behind, limit)
	return `SELECT ` + Names("l.", LetterColumns) + `, i.scope, i.operation, i.key
		FROM` + Letters + `l JOIN` + Intents + `i ON i.id = l.intent WHERE ` + tail, args
}

// PageOfIntents returns the query of Store.Intents: IntentColumns. It is a limited query for each state, so that each reads
// a page of the index and not more. Intents that are held are few, and have an index of their own.
func PageOfIntents(f *durable.Filter, after *durable.Record, limit int) (text string, args []any) {
	var q query
	q.filter(f, "i", "i.created")
	var behind []any
	if after != nil {
		behind = []any{after.CreatedAt, after.ID.Scope, after.ID.Operation, after.ID.Key}
	}
	tail, args := q.page([]string{"i.created", "i.scope", "i.operation", "i.key"}, f.NewestFirst, behind, limit)
	var parts []string
	for _, state := range slices.Compact(slices.Sorted(slices.Values(statesOf(f.States)))) {
		index, condition := "{{by listed}}", listed
		if state.Held() {
			index, condition = "{{by held}}", Held
		}
		if f.Scope != "" && f.Operation != "" && f.Key != "" {
			index = "" // the index of the ID
		}
		parts = append(parts, fmt.Sprintf("SELECT * FROM (SELECT %s FROM%si %s WHERE i.state = %d AND%sAND %s) AS s%d",
			Names("i.", IntentColumns), Intents, index, state, condition, tail, state))
	}
	if len(parts) == 1 {
		return parts[0], args
	}
	_, order, _ := strings.Cut(tail, " ORDER BY ")
	return strings.Join(parts, " UNION ALL ") + " ORDER BY " + strings.ReplaceAll(order, "i.", ""), args
}

// Counts returns the query of Store.Counts: state, gateway, scope and number.
func Counts(states []durable.State) string {
	var numbers []string
	for _, state := range statesOf(states) {
		numbers = append(numbers, strconv.Itoa(int(state)))
	}
	part := func(index, condition string) string {
		return "SELECT i.state, i.gateway, i.scope, count(*) FROM" + Intents + "i " + index + " WHERE" + condition +
			"AND i.state IN (" + strings.Join(numbers, ", ") + ") GROUP BY i.state, i.gateway, i.scope"
	}
	return part("{{by held}}", Held) + " UNION ALL " + part("{{by listed}}", listed)
}

// query is one that is built.
type query struct {
	where []string
	args  []any
}

// placeholder adds an argument, and returns its placeholder.
func (q *query) placeholder(value any) string {
	q.args = append(q.args, value)
	kind := "text"
	switch value.(type) {
	case time.Time:
		kind = "timestamptz"
	case int64:
		kind = "bigint"
	}
	return fmt.Sprintf("$%d::%s", len(q.args), kind)
}

// add adds a condition in which each @ stands for a value.
func (q *query) add(condition string, values ...any) {
	for _, value := range values {
		condition = strings.Replace(condition, "@", q.placeholder(value), 1)
	}
	q.where = append(q.where, condition)
}

// filter adds the conditions of Filter.Matches for a table. at is its column with the time.
func (q *query) filter(f *durable.Filter, table, at string) {
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
		q.add(at+" >= @", durable.Ceil(f.From))
	}
	if !f.Until.IsZero() {
		q.add(at+" < @", durable.Ceil(f.Until))
	}
}

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
	limited := q.placeholder(int64(max(limit, 0)))
	return strings.Join(q.where, " AND ") + " ORDER BY " + strings.Join(order, direction+", ") + direction +
		" LIMIT " + limited, q.args
}

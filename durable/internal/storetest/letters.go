package storetest

import (
	"fmt"
	"slices"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// testLetters lists dead letters.
func (k *kit) testLetters() {
	var want []driver.DeadLetter
	for i := range 25 {
		in := intent(fmt.Sprint("tenant ", i%3))
		in.Batch, in.Row = fmt.Sprint("batch ", i%2), i
		r := k.claimOne(k.must(enqueue(in)))
		class := driver.ClassDeclined
		if i%5 == 0 {
			class = driver.ClassUnknown
		}
		o := outcome(class)
		o.Code = fmt.Sprint("code ", i%4)
		k.must(finish(&r, o, driver.Decision{Action: driver.Bury, Reason: fmt.Sprint("reason ", i%2)}))
		want = append(want, k.letters[in.ID][0])
	}
	for i := range want[:5] { // dealt with
		k.must(event(driver.EventRedrive, want[i].ID))
		want[i] = k.letters[want[i].ID][0]
	}
	slices.SortFunc(want, func(a, b driver.DeadLetter) int { return a.Compare(&b) })
	mid := want[12].DeadAt
	for _, limit := range []int{0, -1} {
		if page, err := k.store.DeadLetters(k.ctx(), driver.Filter{IncludeResolved: true}, nil, limit); len(page) != 0 || err != nil {
			k.Errorf("a page of %d: %d letters, %v", limit, len(page), err)
		}
	}
	for name, f := range map[string]driver.Filter{
		"all":               {IncludeResolved: true},
		"open":              {},
		"scope":             {Scope: "tenant 1"},
		"operation":         {Operation: want[7].ID.Operation, IncludeResolved: true},
		"no such operation": {Operation: "none", IncludeResolved: true},
		"key":               {Key: want[3].ID.Key, IncludeResolved: true},
		"just after":        {From: mid.Add(1), IncludeResolved: true},
		"until just after":  {Until: mid.Add(1), IncludeResolved: true},
		"gateway":           {Gateway: gateway},
		"no such":           {Gateway: "none"},
		"batch":             {Batch: "batch 1"},
		"code":              {Code: "code 3"},
		"reason":            {Reason: "reason 0", IncludeResolved: true},
		"from":              {From: mid},
		"until":             {Until: mid, IncludeResolved: true},
		"one":               {Scope: want[20].ID.Scope, Operation: want[20].ID.Operation, Key: want[20].ID.Key},
		"all three":         {Scope: "tenant 2", Code: "code 1", Batch: "batch 1", IncludeResolved: true},
	} {
		k.checkLetters(name, want, f)
	}
}

// checkLetters reads the dead letters that a filter selects, in pages of 4, in both orders.
func (k *kit) checkLetters(name string, all []driver.DeadLetter, f driver.Filter) {
	k.Helper()
	checkPages(k, name, all, f, f.Matches, func(f driver.Filter, after *driver.DeadLetter) ([]driver.DeadLetter, error) {
		return k.store.DeadLetters(k.ctx(), f, after, 4)
	})
}

// checkPages reads the rows that a filter selects, in pages of 4: oldest first, and newest first.
// all is sorted.
func checkPages[T any](k *kit, name string, all []T, f driver.Filter, matches func(*T) bool, read func(driver.Filter, *T) ([]T, error)) {
	k.Helper()
	var want []T
	for i := range all {
		if matches(&all[i]) {
			want = append(want, all[i])
		}
	}
	for _, f.NewestFirst = range []bool{false, true} {
		var got []T
		for {
			var after *T
			if len(got) > 0 {
				after = &got[len(got)-1]
			}
			page, err := read(f, after)
			k.fatalIf(err != nil || len(page) > 4, "%s: a page of %d, %v", name, len(page), err)
			got = append(got, page...)
			if len(page) < 4 || len(got) > len(all) {
				break
			}
		}
		if f.NewestFirst {
			slices.Reverse(got)
		}
		if d := diff(got, want); d != "" {
			k.Errorf("%s, newest first %v: the rows are not those wanted:\n%s", name, f.NewestFirst, d)
		}
	}
}

// testLettersAtOnce makes many dead letters in one commit, so that only their names order them.
func (k *kit) testLettersAtOnce() {
	var events []driver.Event
	for i, name := range []string{"b", "a", "B", "é", "a!", "ab", "c"} {
		for j, id := range []idempotency.ID{
			{Scope: name, Operation: "o", Key: "k"}, {Scope: "s", Operation: name, Key: "k"}, {Scope: "s", Operation: "o", Key: name},
		} {
			in := intent("")
			in.ID, in.Row = id, 10*i+j
			r := k.claimOne(k.must(enqueue(in)))
			if len(name) == 1 && j == 2 { // the number of its letter is greater than that of others
				r = k.must(finish(&r, outcome(driver.ClassFailed), driver.Decision{}))
				r = k.claimOne(r)
			}
			events = append(events, finish(&r, outcome(driver.ClassDeclined), driver.Decision{Action: driver.Bury}))
		}
	}
	results, err := k.store.Apply(k.ctx(), events)
	k.fatalIf(err != nil, "Apply: %v", err)
	var all []driver.DeadLetter
	for i := range results {
		if results[i].Err != nil {
			k.Fatalf("finish: %v", results[i].Err)
		}
		all = append(all, *results[i].DeadLettered)
	}
	slices.SortFunc(all, func(a, b driver.DeadLetter) int { return a.Compare(&b) })
	k.checkLetters("all at once", all, driver.Filter{})
	k.checkLetters("from then", all, driver.Filter{From: all[0].DeadAt})
	k.checkLetters("until then", all, driver.Filter{Until: all[0].DeadAt})
}

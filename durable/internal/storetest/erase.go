package storetest

import (
	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/durable"
)

// testErase (D24): payload, result, error texts and notes are removed, and nothing else.
func (k *kit) testErase() {
	bury := durable.Decision{Action: durable.Bury}
	for _, row := range []struct {
		name  string
		reach func(in durable.Intent, r durable.Record) durable.Record // from one that was claimed
		want  durable.State
	}{
		{"done after a failure: erased", func(_ durable.Intent, r durable.Record) durable.Record {
			r = k.claimOne(k.must(finish(&r, outcome(durable.ClassFailed), durable.Decision{})))
			return k.must(finish(&r, outcome(durable.ClassSucceeded), durable.Decision{}))
		}, durable.StateDone},
		{"dead after a redrive: canceled and erased", func(in durable.Intent, r durable.Record) durable.Record {
			k.must(finish(&r, outcome(durable.ClassDeclined), bury))
			r = k.claimOne(k.must(event(durable.EventRedrive, in.ID)))
			return k.must(finish(&r, outcome(durable.ClassDeclined), bury))
		}, durable.StateCanceled},
	} {
		in := intent("erase")
		before := row.reach(in, k.claimOne(k.must(enqueue(in))))
		journal := k.journal(in.ID) // what the store has: see checkStored
		for range 2 {               // twice is harmless
			r := k.must(event(durable.EventErase, in.ID))
			assert.Equal(k, row.want, r.State, row.name)
			assert.Equal(k, before.Generation+1, r.Generation, row.name)
			assert.Equal(k, before.Reference, r.Reference, row.name)
			assert.Equal(k, before.Fingerprint, r.Fingerprint, row.name)
			before = r
			got := k.look(in.ID)
			assert.Empty(k, got.Payload, row.name)
			assert.Empty(k, got.Result, row.name)
			for _, a := range journal.Attempts {
				assert.Empty(k, a.Error, row.name)
			}
			for _, l := range journal.Letters {
				assert.False(k, l.RedrivenAt.IsZero() || l.By != "ann" || l.Note != "" && l.Note != durable.NoteErased, "%s: a letter is %+v", row.name, l)
			}
		}
		last := journal.Attempts[len(journal.Attempts)-1]
		assert.Equal(k, durable.KindErase, last.Kind, row.name)
		assert.Equal(k, "ann", last.Worker, row.name)
		assert.Equal(k, before.UpdatedAt, last.FinishedAt, row.name)
		assert.True(k, new(k.apply(enqueue(in))).Receipt().Existing, row.name)
	}
	// The texts of events of the same commit go too.
	r := k.claimOne(k.must(enqueue(intent("erase"))))
	records := k.applyAll(finish(&r, outcome(durable.ClassDeclined), bury), event(durable.EventRedrive, r.ID),
		event(durable.EventCancel, r.ID), event(durable.EventErase, r.ID))
	k.checkStored(&records[3])
}

package storetest

import (
	"errors"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// testFingerprint (D24): a fingerprint of the caller's own decides whether two payloads are
// those of one intent.
func (k *kit) testFingerprint() {
	in := intent("fingerprint")
	in.Payload, in.Fingerprint = []byte("encrypted once"), "invoice 1"
	if r := k.must(enqueue(in)); r.Intent.Fingerprint != "" || r.Fingerprint != driver.FingerprintOf(&in) {
		k.Errorf("a record has the fingerprints %q and %q", r.Intent.Fingerprint, r.Fingerprint)
	}
	plain := intent("fingerprint")
	k.must(enqueue(plain))
	for _, row := range []struct {
		name        string
		of          driver.Intent
		payload     string
		fingerprint idempotency.Fingerprint
		want        error
	}{
		{"another encryption of the payload: the existing intent", in, "encrypted twice", "invoice 1", nil},
		{"another fingerprint: a mismatch", in, "encrypted once", "invoice 2", driver.ErrMismatch},
		{"no fingerprint: the payload is compared", in, "encrypted once", "", driver.ErrMismatch},
		{"no fingerprint twice: the existing intent", plain, string(plain.Payload), "", nil},
		{"a fingerprint of what had none: a mismatch", plain, string(plain.Payload), "invoice 1", driver.ErrMismatch},
	} {
		again := row.of
		again.Payload, again.Fingerprint = []byte(row.payload), row.fingerprint
		if result := k.apply(enqueue(again)); !errors.Is(result.Err, row.want) || result.Err == nil && !result.Receipt().Existing {
			k.Errorf("%s: %v", row.name, result.Err)
		}
	}
}

// testErase (D24): payload, result, error texts and notes are removed, and nothing else.
func (k *kit) testErase() {
	for _, row := range []struct {
		name  string
		reach func() (driver.Intent, driver.Record)
		want  driver.State
	}{
		{"done after a failure: erased", func() (driver.Intent, driver.Record) {
			in := intent("erase")
			r := k.claimOne(k.must(enqueue(in)))
			r = k.claimOne(k.must(finish(&r, outcome(driver.ClassFailed), driver.Decision{})))
			return in, k.must(finish(&r, outcome(driver.ClassSucceeded), driver.Decision{}))
		}, driver.StateDone},
		{"dead after a redrive: canceled and erased", func() (driver.Intent, driver.Record) {
			in := intent("erase")
			r := k.claimOne(k.must(enqueue(in)))
			k.must(finish(&r, outcome(driver.ClassDeclined), driver.Decision{Action: driver.Bury}))
			r = k.claimOne(k.must(event(driver.EventRedrive, in.ID)))
			return in, k.must(finish(&r, outcome(driver.ClassDeclined), driver.Decision{Action: driver.Bury}))
		}, driver.StateCanceled},
	} {
		in, before := row.reach()
		for range 2 { // twice is harmless
			r := k.must(event(driver.EventErase, in.ID))
			if r.State != row.want || r.Generation != before.Generation+1 || r.Reference != before.Reference || r.Fingerprint != before.Fingerprint {
				k.Errorf("%s: %v, generation %d, reference %q", row.name, r.State, r.Generation, r.Reference)
			}
			before = r
			if got := k.look(in.ID); len(got.Payload) != 0 || len(got.Result) != 0 {
				k.Errorf("%s: payload %q, result %q", row.name, got.Payload, got.Result)
			}
			for _, a := range k.attempts[in.ID] { // these are what the store has: see checkStored
				k.failIf(a.Error != "", "%s: the journal has the text %q", row.name, a.Error)
			}
			for _, l := range k.letters[in.ID] {
				k.failIf(l.RedrivenAt.IsZero() || l.By != "ann" || l.Note != "" && l.Note != driver.NoteErased, "%s: a letter is %+v", row.name, l)
			}
		}
		last := k.attempts[in.ID][len(k.attempts[in.ID])-1]
		if last.Kind != driver.KindErase || last.Worker != "ann" || !last.FinishedAt.Equal(before.UpdatedAt) {
			k.Errorf("%s: the journal ends with %+v", row.name, last)
		}
		if result := k.apply(enqueue(in)); result.Err != nil || !result.Receipt().Existing {
			k.Errorf("%s: enqueued again: %v", row.name, result.Err)
		}
	}
	// The texts of events of the same commit go too.
	r := k.claimOne(k.must(enqueue(intent("erase"))))
	declined := finish(&r, outcome(driver.ClassDeclined), driver.Decision{Action: driver.Bury})
	redrive, cancel := event(driver.EventRedrive, r.ID), event(driver.EventCancel, r.ID)
	results, err := k.store.Apply(k.ctx(), []driver.Event{declined, redrive, cancel, event(driver.EventErase, r.ID)})
	k.fatalIf(err != nil, "Apply: %v", err)
	for i := range results {
		if results[i].Err != nil {
			k.Fatalf("event %d: %v", i, results[i].Err)
		}
		k.note(&results[i].Change)
	}
	k.checkStored(&results[3].Record)
}

// Package durable keeps calls that must not be lost: a row for each intent, a journal
// written before each send, outcomes that nobody knows as a state of their own, a
// schedule that is stored and not slept, and dead letters that a person reads and redrives.
// A [resilienthttp.Transport] is patient for as long as its process lives; an [Engine] is
// for as long as its database does.
//
//	engine := &durable.Engine{
//		Store:    store, // sqlitestore's, or pgstore's for many machines
//		Gateways: map[string]durable.Gateway{"psp": durable.HTTP{Client: client, NewRequest: charge, Read: read}},
//		Policy:   durable.CardDeclines(),
//	}
//	receipt, err := engine.Enqueue(ctx, durable.Intent{
//		ID:      idempotency.ID{Scope: "acme", Operation: "POST /charges", Key: "invoice:1"},
//		Gateway: "psp", Payload: payload,
//	})
//	err = engine.Run(ctx) // in as many processes as there are
//
// # What is promised
//
//   - An intent for which Enqueue has returned nil, or whose transaction an [Outbox] has
//     enqueued it in has committed, is sent until it is done, dead or cancelled, whatever
//     dies meanwhile. It is forgotten when it is done or cancelled, and its TTL is over.
//   - Before a byte leaves, the attempt is in the journal, under the key that it is sent
//     under. The key is the same in all attempts until the other side has surely refused it.
//   - What may have been done is never sent under another key, nor under its own once that
//     protects no more, unless the other side, asked long enough after the last send, knows
//     nothing of it, or a person says that it was not done. Where neither can be had it is
//     dead, in doubt, and waits for that person.
//   - A worker that was thought to be dead and was not changes nothing any more.
//
// # What cannot be promised
//
// That something is done once is the other side's to see to: by the keys that it honours
// for KeyTTL, or by telling a [Finder] what it has done. With a side that does neither,
// what is unknown is dead in doubt after the first lost answer. And all of it is as true
// as KeyTTL and VisibilityDelay are: if a request can still be done after VisibilityDelay, or a key is
// forgotten within KeyTTL, an intent may be done twice. A side that keeps no refusals
// under their keys is safe: a refusal of what may have been done counts only once VisibilityDelay
// has passed, and until then the same key is sent again.
//
// Package durable/console shows dead letters to people, and lets them redrive and resolve.
//
// # Words
//
// Who speaks of a RetryEngine finds it as [Engine], the RetryPolicy as [Policy], the
// PaymentGateway as [Gateway], the Scheduler as Record.NextAt, a column that survives its
// process; the DeadLetterQueue as [Engine.Dead], [Engine.Redrive] and [Engine.Resolve]; and
// Backoff as the state of waiting, [StateWaiting].
package durable

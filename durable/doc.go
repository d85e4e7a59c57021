// Package durable sends calls that must not be lost, such as payments. Each call is a row in
// a database. Each send is journalled before its first byte is sent, and an unknown result is
// a state of its own. A [resilienthttp.Transport] stops retrying when its process ends. An
// [Engine] continues in another process with the same database.
//
//	engine := &durable.Engine{
//		Store:    store, // a sqlitestore, or a pgstore for many machines
//		Gateways: map[string]durable.Gateway{"psp": durable.HTTP{Client: client, NewRequest: charge, Read: read}},
//		Policy:   durable.CardDeclines(),
//	}
//	receipt, err := engine.Enqueue(ctx, durable.Intent{
//		ID:      idempotency.ID{Scope: "acme", Operation: "POST /charges", Key: "invoice:1"},
//		Gateway: "psp", Payload: payload,
//	})
//	err = engine.Run(ctx) // in each process that sends
//
// # Guarantees
//
//   - An intent is sent until it is done, dead or canceled, through each crash of a process
//     or of a database that keeps its commits. This holds as soon as Enqueue returned nil, or
//     the transaction of an [Outbox] committed. A failover to an asynchronous standby loses
//     commits: see docs/durable.md.
//   - The key of a send is journalled before the send, and stays the same until the provider
//     declines.
//   - A send that may have had an effect is repeated in two cases only: under the same key
//     while the key protects, or after a status query that found nothing after
//     VisibilityDelay. Otherwise the intent is a dead letter in doubt, and a person decides.
//   - A worker that lost its lease changes nothing.
//
// # Limits
//
// No sender can guarantee that the work is done once. The provider must honour keys for KeyTTL
// or answer status queries: see [Finder]. If it does neither, a lost response is a dead letter
// in doubt. The work may be done twice if a provider forgets keys within KeyTTL, or if a send
// takes effect after VisibilityDelay.
//
// Package durable/console is a web page for dead letters, lists, holds and jobs. See docs/durable.md.
//
// # Stores
//
// A program gives an [Engine] a sqlitestore, a pgstore or, in tests, a [Memory]. A [Store] of another repository is possible, but the
// interface may change with each minor release. Only stores need [Event], [Claim], [Step], [Decide], [FairOrder], [AddQueries] and what
// these take.
package durable

// Package riverwork works the intents of package durable in jobs of River
// (github.com/riverqueue/river), for those whose jobs run there already.
//
// Who does not run River needs none of this: durable.Engine.Run is the queue, with less
// work for the database. Who does gets River's queues, priorities, metrics and web page for
// intents too, and starts one kind of worker in place of two.
//
//	engine := &durable.Engine{Store: store, Gateways: gateways}
//	river.AddWorker(workers, &riverwork.Worker{Engine: engine})
//	…
//	tx, err := pool.Begin(ctx)
//	…
//	_, err = tx.Exec(ctx, "INSERT INTO orders …")
//	receipt, err := riverwork.InsertTx(ctx, client, tx, store.Within(tx), intent, nil)
//	…
//	err = tx.Commit(ctx)
//
// # The intent is the truth
//
// A job is no more than a reminder to look at an intent, which says by itself whether it
// is due, under which key it is sent, and what is known of the sends before. So a job
// that River runs twice, or rescues while it still runs, sends nothing twice, and one that
// is cancelled or deleted withdraws nothing: durable.Engine.Cancel does.
//
// What has no job needs somebody else to look: an intent whose job was lost, or
// discarded; one that was redriven, resolved or imported; one that was mended while the job
// by which it had died was ending, which River takes for a job that it has; one whose worker
// died, which only a reaper makes unknown. So somewhere an Engine of its own, with a long Poll, sweeps
// behind:
//
//	sweeper := &durable.Engine{Store: store, Gateways: gateways, Poll: time.Minute}
//	err := sweeper.Run(ctx)
//
// Without it what a dead worker held stays held, and its job comes back each Lease and
// finds it so. It is another Engine than the Worker's since a long Poll would make that
// wait as long before each send, and since each job that ends would wake it.
//
// Shares are River's affair, too: a job asks for none, neither of a tenant
// (Engine.PerTenant) nor of a Gateway (Engine.PerGateway). Jobs of a provider that hangs keep
// River's workers and the Engine's senders: give it a queue and an Engine of its own.
//
// # What happens to jobs
//
//	intent                              job
//	done, dead, cancelled               is completed
//	to be sent again, or asked for      is snoozed until then, an Engine.Poll at least
//	held by somebody else               is snoozed for an Engine.Lease
//	unknown to the store, not valid     is cancelled, with the error
//	not reached, or an Engine that      has failed, and is retried as River retries,
//	is not in order                     MaxAttempts times
//
// Snoozes are no attempts to River, so a job lives as long as its intent.
package riverwork

// Package riverwork works the intents of package durable in jobs of River
// (github.com/riverqueue/river), for programs that use River already. Others use
// durable.Engine.Run, which costs the database less.
//
//	engine := &durable.Engine{Store: store, Gateways: gateways}
//	river.AddWorker(workers, &riverwork.Worker{Engine: engine})
//	…
//	tx, err := pool.Begin(ctx)
//	…
//	_, err = tx.Exec(ctx, "INSERT INTO orders …")
//	receipt, err := riverwork.InsertTx(ctx, client, tx, store.WithTx(tx), intent, nil)
//	…
//	err = tx.Commit(ctx)
//
// A job is a reminder to look at an intent. The intent decides whether it is due, and under
// which key it is sent. So a job that River runs twice, or rescues while it runs, sends nothing
// twice. To cancel an intent, call durable.Engine.Cancel; cancelling its job has no effect.
//
// Some intents have no job: the job was lost or discarded, or the intent was redriven, resolved,
// revised or imported. Intents of a dead worker must be reaped. So a second Engine with a long
// PollInterval must run in some process:
//
//	sweeper := &durable.Engine{Store: store, Gateways: gateways, PollInterval: time.Minute}
//	err := sweeper.Run(ctx)
//
// Fairness is River's: a job ignores Engine.PerTenant, Engine.PerGateway and the Engine's own
// holds. A provider that hangs occupies the workers of River and of the Engine, so give it its
// own queue and Engine.
//
// # Jobs
//
//	intent                               job
//	done, dead, cancelled                completed
//	to be sent or queried again          snoozed until then, at least Engine.PollInterval
//	held by another worker               snoozed for Engine.LeaseDuration
//	not in the store, or invalid         cancelled, with the error
//	store not reached, Engine invalid    failed, and retried by River up to MaxAttempts
//
// Snoozes are no attempts for River, so a job lives as long as its intent.
package riverwork

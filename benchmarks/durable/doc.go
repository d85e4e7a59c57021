// Package durable compares package durable with River (https://riverqueue.com), a job queue
// for PostgreSQL: no-op work, inserts, inserts in the caller's transaction, and the time until
// an idle worker starts. It also measures a claim with many due or waiting intents. The module
// in sqlite compares them on SQLite.
//
// The first command compares with River; the second and third run everything.
//
//	(cd benchmarks/durable && go test -run '^$' -bench 'Work$|Insert|WithTx|Idle' -benchtime 9x -count 3 .)
//	(cd benchmarks/durable && go test -run '^$' -bench . -benchtime 3x .)
//	(cd benchmarks/durable/sqlite && GOWORK=off go test -run '^$' -bench . -benchtime 3x .)
//
// The libraries take turns, for -benchtime rounds. Results are medians: x-NAME is durable's
// rate as a multiple of NAME's in the same round. Both have their own schema on one server
// that flushes each commit. durable has its defaults. River has the configuration of its own
// benchmark, or its defaults where the name says so.
package durable

// Package durable sets package durable beside River (https://riverqueue.com), the queue
// that one would else build on, on PostgreSQL: no-op work, bringing in, the
// same-transaction outbox, and how soon an idle one begins; and what a claim takes with
// much to claim, and with much that waits. On SQLite see the module in sqlite.
//
// The first command gives the figures beside River, the second and the third give all.
//
//	(cd benchmarks/durable && go test -run '^$' -bench 'Work$|Insert|Within|Idle' -benchtime 9x -count 3 .)
//	(cd benchmarks/durable && go test -run '^$' -bench . -benchtime 3x .)
//	(cd benchmarks/durable/sqlite && GOWORK=off go test -run '^$' -bench . -benchtime 3x .)
//
// Each benchmark runs its contenders in turns, for as many rounds as -benchtime says, and
// reports medians: x-NAME is durable's rate as a multiple of NAME's, in the same round.
// Both have a schema of their own on one server, which flushes each commit. River is
// configured as its own benchmark is, or as by default where that is said; durable as by
// default.
package durable

// Package postgrestest starts PostgreSQL servers for tests and examples. Each server
// has a temporary directory and runs the installed binaries. It is stopped and removed
// when the process that started it exits, however it exits.
//
// [Open] is for tests, [Start] for programs, and [StartBouncer] starts a PgBouncer in
// front of a server. If RESILIENTHTTP_POSTGRES_DSN is set, Open uses that database.
package postgrestest

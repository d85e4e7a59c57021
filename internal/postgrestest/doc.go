// Package postgrestest gives tests and examples a PostgreSQL server of their own:
// a new one, in a temporary directory, from the binaries that are installed. It is
// gone when the process that started it is gone, in whatever way that ends.
//
// [Open] is for tests, [Start] for programs, and [StartBouncer] puts a PgBouncer in
// front of a server. Where RESILIENTHTTP_POSTGRES_DSN is set, Open uses the database
// that it names instead.
package postgrestest

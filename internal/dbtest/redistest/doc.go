// Package redistest starts Redis servers for tests. Each server has a temporary
// directory and runs the installed program. It is stopped and removed when the process
// that started it exits, however it exits.
package redistest

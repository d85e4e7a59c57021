// Package chaos injects faults in the crash tests: it kills and suspends processes, breaks
// connections, databases and disks, and makes servers lose or delay responses.
package chaos

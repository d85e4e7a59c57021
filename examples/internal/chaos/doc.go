// Package chaos is what goes wrong in the examples: processes that are killed and stopped,
// wires, databases and disks that fail, and servers that answer badly, or not.
package chaos

// Package process starts the program again as other processes, with a command as
// its first argument, and kills them.
package process

// Package redistest gives tests a Redis server of their own: a new one, in a temporary
// directory, from the program that is installed. It is gone when the process that
// started it is gone, in whatever way that ends.
package redistest

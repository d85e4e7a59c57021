// Package durable keeps calls that must not be lost: a row for each intent, a journal
// written before each send, outcomes that nobody knows as a state of their own, and
// dead letters that a person reads and redrives.
package durable

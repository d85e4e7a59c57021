// Package process lets an example be several processes: it starts itself again, with a
// word that says as what, and kills what it has started.
package process

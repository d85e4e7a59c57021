// Package gates measures what a turn at a server's quota costs, and what a Shedder is
// worth to a server that is asked for three times what it can do, beside other
// libraries.
package gates

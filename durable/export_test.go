package durable

// MoveClock sets the clock of a Memory forward, or back if by is negative.
var MoveClock = (*Memory).moveClock

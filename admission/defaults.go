package admission

const (
	defaultInitial   = 20
	defaultMin       = 4
	defaultMax       = 1000
	defaultTolerance = 2
)

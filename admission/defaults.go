package admission

import (
	"cmp"
	"fmt"

	"github.com/resilienthttp/resilienthttp/internal/validate"
)

const (
	defaultInitial   = 20
	defaultMin       = 4
	defaultMax       = 1000
	defaultTolerance = 2
)

// Validate returns all errors of the configuration, or nil. Call it at start: a misconfigured
// Shedder answers 500 to all requests. A MaxWait without a unit (100 is 100 ns) is an error.
func (s *Shedder) Validate() error {
	wrong := validate.Errors{Of: errAdmission}
	initial, least, most := s.bounds()
	switch {
	case s.Initial < 0 || s.Min < 0 || s.Max < 0:
		wrong.Addf("Initial %d, Min %d and Max %d must not be negative", s.Initial, s.Min, s.Max)
	case least > most:
		wrong.Addf("Min is %d, and must be at most %d (Max)", least, most)
	default:
		wrong.Check(initial < least || initial > most, fmt.Sprintf("Initial is %d, and must be from %d (Min) to %d (Max)", initial, least, most))
	}
	sound := s.Tolerance == 0 || s.Tolerance < 0 || s.Tolerance > 1
	wrong.Check(!sound, fmt.Sprintf("Tolerance is %v, and must be more than 1", s.Tolerance)) // NaN too
	wrong.Duration("MaxWait", s.MaxWait)
	return wrong.Err()
}

// bounds returns Initial, Min and Max with their defaults.
func (s *Shedder) bounds() (initial, least, most int) {
	initial, least = s.Initial, s.Min
	most = cmp.Or(s.Max, max(defaultMax, initial, least))
	if least == 0 {
		least = min(defaultMin, most)
		if initial > 0 {
			least = min(least, initial)
		}
	}
	return cmp.Or(initial, min(max(defaultInitial, least), most)), least, most
}

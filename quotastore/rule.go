package quotastore

import (
	"errors"
	"fmt"
	"time"
)

// maxUnits and maxWindow limit a rule, so that stores which count in double precision
// (Redis) are exact too.
const (
	maxUnits  = 1 << 40
	maxWindow = 366 * 24 * time.Hour
)

// Rule is the quota of a key.
//
// By default it is a token bucket, which decides as the generic cell rate algorithm
// (GCRA, ITU-T I.371) does. The bucket holds Burst units, and Limit units are added in
// each Window, evenly. In any time, at most Burst + Limit × time / Window units are
// taken. With Sliding, at most Limit units are taken in any Window.
type Rule struct {
	// Limit is the number of units in each Window, from 1 to 2^40. It has no default.
	Limit int

	// Window is the time for Limit units, at most 366 days. It has no default.
	Window time.Duration

	// Burst is the number of units that may be taken at once, up to 2^40. Zero means Limit.
	// Sliding ignores it.
	Burst int

	// Sliding counts the units of the last Window, instead of using a token bucket. Up
	// to a Limit of 64 each take counts for exactly one Window. Above that, takes within
	// a 64th of a Window count as long as the last of them.
	Sliding bool
}

// Validate returns what is wrong with the rule, or nil.
func (r Rule) Validate() error {
	switch {
	case r.Limit < 1:
		return fmt.Errorf("quotastore: Limit is %d, and must be at least 1", r.Limit)
	case int64(r.Limit) > maxUnits:
		return fmt.Errorf("quotastore: Limit is %d, and must be at most 2^40", r.Limit)
	case r.Window <= 0:
		return fmt.Errorf("quotastore: Window is %v, and must be positive", r.Window)
	case r.Window > maxWindow:
		return fmt.Errorf("quotastore: Window is %v, and must be at most 366 days", r.Window)
	case r.Burst < 0:
		return errors.New("quotastore: Burst is negative")
	case int64(r.Burst) > maxUnits:
		return fmt.Errorf("quotastore: Burst is %d, and must be at most 2^40", r.Burst)
	}
	return nil
}

// Capacity returns the number of units that can be taken at once: Burst, or Limit if
// Burst is 0 or the rule is Sliding.
func (r Rule) Capacity() int {
	if r.Burst == 0 || r.Sliding {
		return r.Limit
	}
	return r.Burst
}

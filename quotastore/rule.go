package quotastore

import (
	"errors"
	"fmt"
	"time"
)

// mostUnits and longestWindow bound what a rule says, so that stores which count in
// double precision (Redis) are exact too.
const (
	mostUnits     = 1 << 40
	longestWindow = 366 * 24 * time.Hour
)

// Rule is how much a key may take.
//
// By default it is a token bucket, which is what the generic cell rate algorithm
// (GCRA, ITU-T I.371) decides too: it holds Burst units and gets Limit in each
// Window, evenly. So no more than Burst + Limit × time / Window are taken in any
// time. With Sliding no more than Limit are taken in any Window.
type Rule struct {
	// Limit is how many units there are in each Window: from 1 to 2^40. It has no
	// default.
	Limit int

	// Window is the time for Limit units, at most 366 days. It has no default.
	Window time.Duration

	// Burst is how many may be taken at once, up to 2^40. 0 means Limit. It has no
	// meaning with Sliding.
	Burst int

	// Sliding counts what was taken in the last Window, instead of filling a bucket.
	// For a Limit up to 64 each take counts for exactly a Window; above that, those
	// within a 64th of a Window count as long as the last of them.
	Sliding bool
}

// Validate is what is wrong with the rule; nil if nothing is.
func (r Rule) Validate() error {
	switch {
	case r.Limit < 1:
		return fmt.Errorf("quotastore: Limit is %d, and must be at least 1", r.Limit)
	case int64(r.Limit) > mostUnits:
		return fmt.Errorf("quotastore: Limit is %d, and must be at most 2^40", r.Limit)
	case r.Window <= 0:
		return fmt.Errorf("quotastore: Window is %v, and must be positive", r.Window)
	case r.Window > longestWindow:
		return fmt.Errorf("quotastore: Window is %v, and must be at most 366 days", r.Window)
	case r.Burst < 0:
		return errors.New("quotastore: Burst is negative")
	case int64(r.Burst) > mostUnits:
		return fmt.Errorf("quotastore: Burst is %d, and must be at most 2^40", r.Burst)
	}
	return nil
}

// Capacity is how much can be taken at once: Burst, or Limit if that is not set or the
// rule is Sliding.
func (r Rule) Capacity() int {
	if r.Burst == 0 || r.Sliding {
		return r.Limit
	}
	return r.Burst
}

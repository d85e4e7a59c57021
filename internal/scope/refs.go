package scope

import "sync/atomic"

// Refs counts the records that point to a map's value: see Map.Held.
type Refs struct{ n atomic.Int32 }

// Acquire counts one more record.
func (r *Refs) Acquire() { r.n.Add(1) }

// Release ends one Acquire.
func (r *Refs) Release() { r.n.Add(-1) }

// Held reports whether a record points to the value.
func (r *Refs) Held() bool { return r.n.Load() > 0 }

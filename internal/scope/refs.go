package scope

import "sync/atomic"

// Refs counts the records that point to a map's value. A Map whose Keep asks Held evicts it last.
type Refs struct{ n atomic.Int32 }

// Acquire adds a record.
func (r *Refs) Acquire() { r.n.Add(1) }

// Release removes a record. It must be called once for each Acquire.
func (r *Refs) Release() { r.n.Add(-1) }

// Held reports whether a record points to the value.
func (r *Refs) Held() bool { return r.n.Load() > 0 }

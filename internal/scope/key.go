package scope

import "strings"

// Key names what shares state: a scope, and within it a class of calls that has
// a state of its own where that is wanted (a priority). The zero Class is that of
// calls that say nothing.
type Key struct {
	Name  string
	Class int8
}

// Clone copies the name, which may be a part of a larger string.
func (k Key) Clone() Key { return Key{strings.Clone(k.Name), k.Class} }

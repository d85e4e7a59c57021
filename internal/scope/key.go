package scope

import "strings"

// Key identifies shared state: a scope, and a class of calls within it that has its own state (a
// priority). The zero Class is the default.
type Key struct {
	Name  string
	Class int8
}

// Clone copies the name, which may be a part of a larger string.
func (k Key) Clone() Key { return Key{strings.Clone(k.Name), k.Class} }

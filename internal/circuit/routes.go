package circuit

import "slices"

// routes are hashes of routes. The first has failed, or was tested, longest ago. A route is a method and a path with
// IDs replaced.
type routes []uint64

// maxRoutes is the number of routes that an outage knows. If more have failed, all others are taken for failing too.
const maxRoutes = 16

func (r routes) has(route uint64) bool { return len(r) >= maxRoutes || slices.Contains(r, route) }

func (r *routes) add(route uint64) {
	r.remove(route)
	if len(*r) < maxRoutes {
		*r = append(*r, route)
	}
}

func (r *routes) remove(route uint64) {
	*r = slices.DeleteFunc(*r, func(other uint64) bool { return other == route })
}

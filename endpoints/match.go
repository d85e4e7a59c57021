package endpoints

import (
	"net/url"
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
	"github.com/resilienthttp/resilienthttp/internal/route"
)

// match finds the endpoint for a URL: the URL begins with the endpoint's. The longest path decides, and of
// endpoints with the same URL the preferred one or else the first. path is the rest of the path, escaped:
// "" or with a slash in front. A path with a dot segment is below none, because a server may resolve it to
// a path outside.
func match(targets []route.Target, u *url.URL, preferred *route.Target) (index int, path string, ok bool) {
	if u.Opaque != "" || u.Host == "" || slices.Contains(strings.Split(u.Path, "/"), "..") {
		return 0, "", false
	}
	escaped, longest := u.EscapedPath(), -1
	for i := range targets {
		at := targets[i].URL
		base := route.Base(at)
		rest, below := strings.CutPrefix(escaped, base)
		better := len(base) > longest || len(base) == longest && &targets[i] == preferred
		if below = below && (rest == "" || rest[0] == '/'); below && better && hostmatch.SameOrigin(at, u) {
			index, path, longest = i, rest, len(base)
		}
	}
	return index, path, longest >= 0
}

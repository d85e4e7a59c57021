package conditional

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// resource is a handler with one resource and numbered versions.
type resource struct {
	mu      sync.Mutex
	content string // "": the resource does not exist
	version int
	writes  int

	weak, untagged bool
	dated          bool                // Last-Modified instead of a tag
	beforeWrite    func(n int) string  // what another writer stores before the nth PUT; "": nothing
	reformat       func(string) string // applied to stored content
	puts           int
}

func (r *resource) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Method == http.MethodGet {
		r.get(w)
		return
	}
	r.puts++
	if r.beforeWrite != nil {
		if other := r.beforeWrite(r.puts); other != "" {
			r.set(other)
		}
	}
	if !r.holds(req.Header) {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	r.writes++
	r.set(string(body))
	w.Header().Set("Etag", r.tag())
	_, _ = io.WriteString(w, "written")
}

func (r *resource) get(w http.ResponseWriter) {
	if r.content == "" {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	switch {
	case r.dated:
		w.Header().Set("Last-Modified", r.tag())
	case r.weak:
		w.Header().Set("Etag", "W/"+r.tag())
	case !r.untagged:
		w.Header().Set("Etag", r.tag())
	}
	w.Header().Set("Content-Type", "text/x-list")
	_, _ = io.WriteString(w, r.content)
}

func (r *resource) set(content string) {
	if r.reformat != nil {
		content = r.reformat(content)
	}
	r.content = content
	r.version++
}

func (r *resource) tag() string {
	if r.dated {
		return fmt.Sprintf("Fri, 31 Dec 1999 23:%02d:00 GMT", r.version)
	}
	return strconv.Quote(strconv.Itoa(r.version))
}

func (r *resource) holds(h http.Header) bool {
	switch {
	case h.Get("If-None-Match") == "*":
		return r.content == ""
	case h.Get("If-Match") != "":
		return r.content != "" && h.Get("If-Match") == r.tag()
	}
	return r.content != "" && h.Get("If-Unmodified-Since") == r.tag()
}

// once serves the first PUT with first, and all other requests with rest.
func once(first, rest http.Handler) http.Handler {
	puts := faulttest.Sequence(first, rest)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			puts.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// add returns a Modify that adds an item. The content shows if it was applied twice.
func add(calls *int) Modify {
	return func(current []byte, _ http.Header) ([]byte, error) {
		*calls++
		return []byte(strings.TrimPrefix(string(current)+",mine", ",")), nil
	}
}

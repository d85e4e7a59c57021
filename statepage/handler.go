// Package statepage shows what the clients and the server parts of a program know now, as a
// page and as JSON: which hosts fail and why, which are blocked until when, how much of each
// quota is used, and where the time of the slowest calls went.
//
//	http.Handle("/debug/resilience", &statepage.Handler{
//		Transports: map[string]*resilienthttp.Transport{"bank": bank, "mail": mail},
//	})
//
// The page has no script, loads nothing and changes nothing. It shows host names and figures,
// and no part of a request or a response. Still, serve it to operators only.
package statepage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/resilienthttp/resilienthttp"
)

// Handler serves the page on GET and HEAD: HTML, or JSON if the Accept header prefers it or
// with ?format=json. ?refresh=2 makes the browser reload every two seconds (1 to 3600), and
// ?scope=api shows only the scopes with this text in their name.
//
// The JSON has everything that the HTML shows. Of many scopes the HTML shows the worst ones.
// The "version" of the JSON is 1 until a field is renamed or changes its meaning. Times are
// RFC 3339. Durations are seconds, also a time.Duration in the state of a Source.
//
// Fields must not change after the first request. A Handler is safe for concurrent use and
// must not be copied after its first use.
type Handler struct {
	// Transports are the clients of the program, by the name to show.
	Transports map[string]*resilienthttp.Transport

	// Sources are further parts of the program, in this order.
	Sources []Source

	// Title is the title of the page. "" means "resilienthttp".
	Title string

	once    sync.Once
	sources []*source
}

// Source is a part of the program, such as a Shedder, a queue or a store. The page shows its state.
type Source struct {
	Name string

	// State returns a value that encoding/json can write. It must not contain secrets, and
	// must be safe for concurrent use. If it fails, or takes longer than a second, the page
	// shows that instead. It is not called again before it has returned.
	State func(context.Context) (any, error)
}

var _ http.Handler = (*Handler)(nil)

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", securityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	header.Set("Vary", "Accept")
	query := r.URL.Query()
	asJSON := wantsJSON(r.Header.Values("Accept"))
	if format := query.Get("format"); format != "" {
		asJSON = format == "json"
	}
	if asJSON {
		header.Set("Content-Type", "application/json")
	} else {
		header.Set("Content-Type", "text/html; charset=utf-8")
	}
	if r.Method == http.MethodHead {
		return
	}
	p := h.page(r.Context(), query.Get("scope"))
	if asJSON {
		text, err := json.Marshal(p)
		if err != nil {
			http.Error(w, "cannot encode the state as JSON", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(text) // the client may be gone
		return
	}
	_ = htmlPage.Execute(w, newPageData(p, refreshOf(query.Get("refresh"))))
}

// page collects the states.
func (h *Handler) page(ctx context.Context, filter string) *page {
	h.once.Do(func() {
		for _, s := range h.Sources {
			h.sources = append(h.sources, &source{Source: s})
		}
	})
	return newPage(cmp.Or(h.Title, "resilienthttp"), h.Transports, askAll(ctx, h.sources), filter)
}

// refreshOf returns the seconds between two reloads; 0: none.
func refreshOf(value string) int {
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds < 1 || seconds > 3600 {
		return 0
	}
	return seconds
}

// wantsJSON reports whether an Accept header prefers JSON to HTML (RFC 9110 section 12.5.1).
// Of equal preferences the first counts.
func wantsJSON(accept []string) bool {
	best, isJSON := 0.0, false
	for _, list := range accept {
		for item := range strings.SplitSeq(list, ",") {
			kind, params, _ := strings.Cut(item, ";")
			kind = strings.ToLower(strings.TrimSpace(kind))
			if kind != "application/json" && kind != "text/html" {
				continue
			}
			if q := qualityOf(params); q > best {
				best, isJSON = q, kind == "application/json"
			}
		}
	}
	return isJSON
}

func qualityOf(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if strings.EqualFold(name, "q") {
			q, err := strconv.ParseFloat(value, 64)
			if err != nil || !(q >= 0 && q <= 1) {
				return 0
			}
			return q
		}
	}
	return 1
}

// securityPolicy allows the style of the page, its own form, and nothing else.
var securityPolicy = func() string { //nolint:gochecknoglobals // never written to
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

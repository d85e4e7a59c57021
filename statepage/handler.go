// Package statepage shows what the clients and the server parts of a program know now, on
// one page for people and as JSON for programs: which hosts are refused, until when and
// why; how full the quotas are; where the time of the slowest calls went.
//
//	http.Handle("/debug/resilience", &statepage.Handler{
//		Transports: map[string]*resilienthttp.Transport{"bank": bank, "mail": mail},
//	})
//
// The page has no script, loads nothing, and reads only. It tells names of hosts and
// figures, and nothing of what requests and responses hold; still, serve it where
// operators are, and not to the world.
package statepage

import (
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

// Handler serves the page: HTML, or JSON for a request that prefers it by its Accept
// header or says ?format=json. ?refresh=2 has a browser ask again every two seconds (1 to
// 3600), and ?scope=api shows only scopes whose names hold that. It answers GET and HEAD.
//
// The JSON holds all that the HTML shows, and more: of very many scopes, the HTML shows
// those first that are in trouble, or that calls wait for, and says how many it left out.
// Its "version" is 1, and is another once a field is renamed or means something else.
// Times are RFC 3339, spans are seconds, also each time.Duration in a Source's state.
//
// Fields are read at the first request and must not change after it. A Handler is safe
// for concurrent use and must not be copied after its first use.
type Handler struct {
	// Transports are the program's clients, by the name that the page calls them.
	Transports map[string]*resilienthttp.Transport

	// Sources are what else there is to see, in this order.
	Sources []Source

	// Title is that of the page; "" means "resilienthttp".
	Title string

	once    sync.Once
	sources []*source
}

// Source is a part of the program whose state is on the page: a server's gate, a queue, a
// store.
type Source struct {
	Name string

	// State returns what there is to show: anything that encoding/json can write, and
	// nothing that is secret. A time.Duration in it is a span, but in what marshals
	// itself. It must be safe for concurrent use. One that takes longer
	// than a second, or fails, is on the page with that instead, and one that has not
	// returned is not asked again.
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
		http.Error(w, "the page is read with GET", http.StatusMethodNotAllowed)
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
			http.Error(w, "the state cannot be written as JSON", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(text) // there is nobody to tell that nobody reads
		return
	}
	_ = htmlPage.Execute(w, sight(p, refreshOf(query.Get("refresh"))))
}

// page is what is known now.
func (h *Handler) page(ctx context.Context, part string) *page {
	h.once.Do(func() {
		for _, s := range h.Sources {
			h.sources = append(h.sources, &source{Source: s})
		}
	})
	return newPage(h.title(), h.Transports, askAll(ctx, h.sources), part)
}

func (h *Handler) title() string {
	if h.Title == "" {
		return "resilienthttp"
	}
	return h.Title
}

// refreshOf is after how many seconds a browser is to ask again; 0: it is not.
func refreshOf(value string) int {
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds < 1 || seconds > 3600 {
		return 0
	}
	return seconds
}

// wantsJSON reports whether an Accept header prefers JSON to HTML (RFC 9110 section
// 12.5.1); of what it likes as much, the first.
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

// securityPolicy lets the page have its own style, and nothing else.
var securityPolicy = func() string { //nolint:gochecknoglobals // never written to
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()

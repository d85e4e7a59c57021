// Package console shows dead letters to the people who must decide about them: which there
// are, what each attempt met, and forms to redrive and to resolve them.
//
//	http.Handle("/durable", authorised(&console.Handler{
//		Engine: engine, By: func(r *http.Request) string { return userOf(r).Name },
//	}))
//
// The pages have no script and load nothing. Who may see them, and who may act, is for the
// caller to decide, in front of the Handler and in By.
package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"sync"

	"github.com/resilienthttp/resilienthttp/durable"
)

// Handler serves the console, all of it at one path, wherever it is mounted. Its fields are
// frozen at its first use. It is safe for concurrent use and must not be copied then.
type Handler struct {
	// Engine is what is shown, and what redrives and resolves. It must be set.
	Engine *durable.Engine

	// By names who acts: it is recorded with what was done. "" may not act. nil: nobody
	// may, and the console only shows.
	By func(*http.Request) string

	// Describe is what may be shown of an intent's payload, in a few lines of text. nil:
	// nothing is.
	Describe func(*durable.Record) string

	// Title is that of the pages. "": "durable".
	Title string

	once    sync.Once
	handler http.Handler
}

var _ http.Handler = (*Handler)(nil)

// ServeHTTP implements http.Handler. A POST from another origin is refused, by
// http.CrossOriginProtection.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(func() { h.handler = http.NewCrossOriginProtection().Handler(http.HandlerFunc(h.serve)) })
	header := w.Header()
	header.Set("Content-Security-Policy", securityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin") // without one, a form's POST would have no origin
	header.Set("Cache-Control", "no-store")
	h.handler.ServeHTTP(w, r)
}

// securityPolicy allows the page's own style, its own forms, and nothing else.
var securityPolicy = func() string { //nolint:gochecknoglobals // never written to
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// longestForm bounds what is read of a POST.
const longestForm = 64 << 10

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	if h.Engine == nil {
		h.fail(w, http.StatusInternalServerError, "the console has no Engine")
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h.show(w, r)
	case http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, longestForm)
		h.act(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		h.fail(w, http.StatusMethodNotAllowed, "the console is read with GET, and acts with POST")
	}
}

func (h *Handler) show(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var p *page
	var err error
	switch query.Get("view") {
	case "":
		p, err = h.list(r, query)
	case "intent":
		p, err = h.intent(r, query)
	case "redrive":
		p, err = h.confirm(r, query)
	default:
		err = errForm
	}
	if err != nil {
		h.explain(w, err)
		return
	}
	h.render(w, http.StatusOK, p)
}

// errForm is about a request that no page of the console makes.
var errForm = errors.New("nothing is known by this address")

// explain is the page of an error.
func (h *Handler) explain(w http.ResponseWriter, err error) {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		h.fail(w, http.StatusRequestEntityTooLarge, "the form is too large")
	case errors.Is(err, errForm), errors.Is(err, durable.ErrInvalid):
		h.fail(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, durable.ErrNotFound):
		h.fail(w, http.StatusNotFound, "There is no such intent.")
	case errors.Is(err, durable.ErrStale), errors.Is(err, durable.ErrInvalidState):
		h.fail(w, http.StatusConflict, "The intent has changed since this page was shown. Nothing was done. Look at it again.")
	default: // its text may hold anything
		h.fail(w, http.StatusInternalServerError, "The store has failed. What was to be done may be done by halves; doing it again is safe.")
	}
}

func (h *Handler) fail(w http.ResponseWriter, status int, text string) {
	h.render(w, status, &page{Problem: text})
}

func (h *Handler) render(w http.ResponseWriter, status int, p *page) {
	p.Title, p.Style = h.Title, pageStyle
	if p.Title == "" {
		p.Title = "durable"
	}
	p.MayAct = h.By != nil
	var body bytes.Buffer
	if err := htmlPage.Execute(&body, p); err != nil {
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = body.WriteTo(w)
}

package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/resilienthttp/resilienthttp/durable"
)

// act does what a form asks for, and leads back to where one sees what came of it.
func (h *Handler) act(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); !large {
			err = errForm
		}
		h.explain(w, err)
		return
	}
	by := ""
	if h.By != nil {
		by = h.By(r)
	}
	if by == "" {
		h.fail(w, http.StatusForbidden, "You may not act here.")
		return
	}
	var back url.Values
	var err error
	switch r.PostForm.Get("action") {
	case "redrive":
		back, err = h.redrive(r, by)
	case "resolve":
		back, err = h.resolve(r, by)
	default:
		err = errForm
	}
	if err != nil {
		h.explain(w, err)
		return
	}
	w.Header().Set("Location", "?"+back.Encode()) // relative: the path may be another one outside
	w.WriteHeader(http.StatusSeeOther)
}

// redrive brings back one intent, or all that a filter chooses.
func (h *Handler) redrive(r *http.Request, by string) (url.Values, error) {
	how := durable.Redrive{By: by, Note: r.PostForm.Get("note")}
	if r.PostForm.Get("one") != "" { // no filter: an empty part of an ID would choose all
		id := idOf(r.PostForm)
		back := linkTo(id)
		back.Set("redriven", "1")
		return back, h.Engine.RedriveOne(r.Context(), id, how)
	}
	filter, err := filterOf(r.PostForm)
	if err != nil {
		return nil, err
	}
	if rate := r.PostForm.Get("per_second"); rate != "" {
		if how.PerSecond, err = strconv.ParseFloat(rate, 64); err != nil || !(how.PerSecond > 0) {
			return nil, fmt.Errorf("%w: %q a second", durable.ErrInvalid, rate)
		}
	}
	n, err := h.Engine.Redrive(r.Context(), filter, how)
	if err != nil {
		return nil, err
	}
	back := queryOf(&filter)
	back.Set("redriven", strconv.Itoa(n))
	return back, nil
}

// resolve takes a person's word.
func (h *Handler) resolve(r *http.Request, by string) (url.Values, error) {
	outcome := durable.Outcome{Reference: r.PostForm.Get("reference"), Code: r.PostForm.Get("code")}
	switch r.PostForm.Get("class") {
	case "succeeded":
		outcome.Class = durable.ClassSucceeded
	case "refused":
		outcome.Class = durable.ClassRefused
	default:
		return nil, fmt.Errorf("%w: say whether it was done", durable.ErrInvalid)
	}
	id := idOf(r.PostForm)
	if err := h.Engine.Resolve(r.Context(), id, outcome, by); err != nil {
		return nil, err
	}
	back := linkTo(id)
	back.Set("resolved", "1")
	return back, nil
}

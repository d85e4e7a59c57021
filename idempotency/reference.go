package idempotency

import (
	"context"
	"errors"
	"fmt"
	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"net/http"
	"strings"
)

// Refer says where the result of the execution is to be found: a row's id, an
// object's name, of at most 512 bytes of UTF-8 without a NUL. When the handler
// succeeds, the record keeps that in place of the response's body, however long
// that is, and Handler.Rebuild answers those who ask again. A refusal is stored as
// it is, and so is every response of a Handler without Rebuild.
//
// For the work of Do it becomes Result.Reference, unless that is set; the Body is
// stored beside it.
//
// The last call counts, and "" takes it back. Where ctx is no execution's, as in a
// request that passes without a key, or its execution is over, nothing happens. The
// error is an ErrInvalid.
func SetReference(ctx context.Context, reference string) error {
	if err := driver.ValidateName("reference", reference); err != nil {
		return err
	}
	if e, ok := executionOf(ctx); ok {
		e.note(func() { e.reference = reference })
	}
	return nil
}

func (e *execution) referred() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reference
}

// result is what is stored of a response when its execution ends with status.
func (v *requestHandler) result(e *execution, c *capture, status Status) Result {
	switch {
	case v.refers(e, status):
		return c.reference(e.referred())
	case status == Completed || status == FailedFinal:
		return c.result()
	default:
		return Result{Code: c.status()}
	}
}

// refers reports whether the record keeps a reference in place of the body.
func (v *requestHandler) refers(e *execution, status Status) bool {
	return status == Completed && v.LoadResult != nil && e.referred() != ""
}

// reference is what is stored of a response that can be made again: all but the
// body, and what would be wrong for another body.
func (c *capture) reference(to string) Result {
	result := c.result()
	for name := range result.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length", "Content-Range", "Content-Md5", "Content-Digest", "Repr-Digest", "Digest",
			"Etag", "Last-Modified", "Trailer":
			delete(result.Header, name)
		default:
			if strings.HasPrefix(name, http.TrailerPrefix) {
				delete(result.Header, name)
			}
		}
	}
	return Result{Code: result.Code, Header: result.Header, Reference: to}
}

// replay answers with what a record says, or refers to.
func (v *requestHandler) replay(record *driver.Record) {
	result, err := v.rebuilt(record)
	if err != nil {
		v.refuse(rebuildFailed(), StoreFailed, err, "")
		return
	}
	v.done(Replayed, result.Code, nil)
	replay(v.w, result)
}

// rebuilt is the result of a record, made again if it is elsewhere. A Handler that
// knows no way there gives none, rather than one without a body: another version of
// the program has made the record.
func (v *requestHandler) rebuilt(record *driver.Record) (Result, error) {
	stored := record.Result
	if v.LoadResult == nil && stored.Reference != "" && len(stored.Body) == 0 {
		return Result{}, errNoRebuild
	}
	if v.LoadResult == nil || stored.Reference == "" {
		return stored, nil
	}
	result, err := v.LoadResult(v.r.Context(), record.ID, stored.Reference)
	if err != nil {
		return Result{}, err
	}
	if result.Code == 0 {
		result.Code = stored.Code
	}
	if result.Header == nil {
		result.Header = stored.Header
	}
	if result.Code != 0 && (result.Code < 200 || result.Code > 999) {
		return Result{}, fmt.Errorf("idempotency: Rebuild gave the status %d", result.Code)
	}
	return result, nil
}

var errNoRebuild = errors.New("idempotency: the record refers to its response, and the Handler has no Rebuild")

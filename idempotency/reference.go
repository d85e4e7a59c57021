package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// SetReference sets the place of the execution's result: a row's id or an object's name,
// of at most 512 bytes of UTF-8 without NUL. After a success, the record keeps the
// reference instead of the response's body, and Handler.LoadResult answers duplicates.
// Failures, and responses of a Handler without LoadResult, are stored unchanged. For the
// work of Do, the reference becomes Result.Reference, unless that is set.
//
// The last call counts, and "" removes the reference. Outside of a running execution
// it does nothing. The error is an ErrInvalid.
func SetReference(ctx context.Context, reference string) error {
	if err := validateName("reference", reference); err != nil {
		return err
	}
	if e, ok := executionOf(ctx); ok {
		e.set(func() { e.reference = reference })
	}
	return nil
}

func (e *execution) referenced() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reference
}

// result returns what is stored of the response of an execution that ends with status.
func (v *requestHandler) result(e *execution, c *capture, status Status) Result {
	switch {
	case v.refers(e, status):
		return c.reference(e.referenced())
	case status == Completed || status == FailedFinal:
		return c.result()
	default:
		return Result{Code: c.code}
	}
}

// refers reports whether the record keeps a reference instead of the body.
func (v *requestHandler) refers(e *execution, status Status) bool {
	return status == Completed && v.LoadResult != nil && e.referenced() != ""
}

// reference returns what is stored of a response that LoadResult can make again: all
// but the body and the fields that describe it.
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

// replay answers with the stored result, or with that of LoadResult.
func (v *requestHandler) replay(record *Record) {
	result, err := v.load(record)
	if err != nil {
		v.reject(loadFailed, StoreFailed, err, "")
		return
	}
	v.done(Replayed, result.Code, nil)
	replay(v.w, result)
}

// load returns the result of a record. Without a LoadResult, a reference is an error:
// another version of the program has written the record.
func (v *requestHandler) load(record *Record) (Result, error) {
	stored := record.Result
	if v.LoadResult == nil && stored.Reference != "" && len(stored.Body) == 0 {
		return Result{}, errors.New("idempotency: the record refers to its response, and Handler.LoadResult is nil")
	}
	if v.LoadResult == nil || stored.Reference == "" {
		return stored, nil
	}
	result, err := v.LoadResult(v.r.Context(), record.ID, stored.Reference)
	if err != nil {
		return Result{}, err
	}
	result.Code = cmp.Or(result.Code, stored.Code)
	if result.Header == nil {
		result.Header = stored.Header
	}
	if result.Code != 0 && (result.Code < 200 || result.Code > 999) {
		return Result{}, fmt.Errorf("idempotency: LoadResult returned the status %d, want 200 to 999", result.Code)
	}
	return result, nil
}

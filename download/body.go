package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// slowTime is the time of blocked Reads in which MinProgress must arrive.
const slowTime = time.Minute

var (
	errTooLong = errors.New("download: body is longer than its Content-Length")
	errSlow    = fmt.Errorf("download: fewer bytes in %v than MinProgress", slowTime)
)

// body is the body of a response. Its bytes come from one response after the other. As bodies of
// net/http, one goroutine reads it, and any goroutine closes it.
type body struct {
	version

	transport *Transport
	request   *http.Request
	backoff   resilienthttp.Backoff

	offset    int64         // the number of bytes that the caller has
	end       int64         // the offset at which the part ends
	broken    error         // what interrupted the download; nil: the part can be read
	fruitless int           // resumes since the last byte
	waited    time.Duration // the last wait
	progress  progress
	slow      *time.Timer // closes the part; nil before its first Read
	result    error       // what every Read returns from now on

	mu     sync.Mutex
	part   io.ReadCloser      // the body of the last response
	closed bool               // by the caller
	cancel context.CancelFunc // ends resumes; nil before the first one
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	for b.result == nil {
		if b.broken != nil {
			if b.result = b.resume(); b.result != nil {
				break
			}
		}
		if n, err := b.readPart(p); n > 0 || err == nil {
			return n, b.result
		}
	}
	return 0, b.result
}

// readPart reads from the part. At its end it sets broken or result.
func (b *body) readPart(p []byte) (int, error) {
	left := b.end - b.offset
	if int64(len(p)) > left {
		p = p[:max(left, 1)] // at the end one byte more: a Base may send too many
	}
	n, err := b.readInTime(p)
	if int64(n) > left {
		b.result = errTooLong
		return 0, errTooLong
	}
	if b.offset += int64(n); n > 0 {
		b.fruitless, b.waited = 0, 0
	}
	switch {
	case b.offset == b.length && err != nil: // also if the connection broke after the last byte
		b.result = io.EOF
		return n, io.EOF
	case err == nil && (b.offset < b.end || b.end == b.length):
		return n, nil
	case err == nil || errors.Is(err, io.EOF): // a part may be shorter than requested
		err = io.ErrUnexpectedEOF
	}
	b.broken = err
	return n, err
}

// progress is how much the server has sent since there was last enough.
type progress struct {
	bytes   int64
	blocked time.Duration // the time of the Reads for them: a slow caller is not counted
	missed  int           // how often slowTime has passed before there was enough
}

func (p *progress) add(n, enough int64, took time.Duration) {
	p.bytes += n
	p.blocked += took
	switch {
	case p.bytes >= enough:
		*p = progress{}
	case p.blocked >= slowTime:
		*p = progress{missed: p.missed + 1}
	}
}

// readInTime reads from the part. It closes the part if too few bytes arrive.
func (b *body) readInTime(p []byte) (int, error) {
	enough := b.transport.minProgress()
	if enough < 0 {
		return b.part.Read(p)
	}
	began, left := time.Now(), slowTime-b.progress.blocked
	if b.slow == nil {
		part := b.part
		b.slow = time.AfterFunc(left, func() {
			defer func() { _ = recover() }() // of Close: the caller cannot recover in this goroutine
			_ = part.Close()
		})
	} else {
		b.slow.Reset(left)
	}
	n, err := b.part.Read(p)
	if !b.slow.Stop() {
		err = errSlow
	}
	b.progress.add(int64(n), enough, time.Since(began))
	return n, err
}

// resume opens the next part. Its error is the result of the download.
func (b *body) resume() error {
	most := b.transport.maxResumes()
	switch {
	case b.fruitless >= most:
		return b.failure(fmt.Sprintf("%d brought no byte", b.fruitless))
	case b.progress.missed > most:
		return b.failure(fmt.Sprintf("%d brought too few bytes", most))
	}
	began := time.Now() // a server may be slow before its headers too
	defer func() { b.progress.add(0, b.transport.minProgress(), time.Since(began)) }()
	ctx := b.context()
	_ = b.part.Close()
	if b.fruitless++; b.fruitless > 1 {
		b.waited = b.backoff(b.fruitless-1, b.waited)
		if err := sleep.BeforeDeadline(ctx, b.waited); err != nil {
			return b.failure(err.Error())
		}
	}
	if ctx.Err() != nil {
		return b.failure("")
	}
	resp, err := b.transport.send(b.rest(ctx))
	if err != nil {
		return b.failure(err.Error())
	}
	end, why := b.check(resp)
	if why != "" || !b.install(resp.Body, end) {
		_ = resp.Body.Close()
		return b.failure(why)
	}
	return nil
}

// failure returns the error that interrupted the download, and why it is not resumed.
func (b *body) failure(why string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch err := b.request.Context().Err(); {
	case b.closed:
		return http.ErrBodyReadAfterClose
	case err != nil:
		return err
	}
	return fmt.Errorf("download: after %d of %d bytes: %w (resume: %s)", b.offset, b.length, b.broken, why)
}

// context returns the context of a resume, which ends when the body is closed.
func (b *body) context() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
	ctx, cancel := context.WithCancel(b.request.Context())
	if b.cancel = cancel; b.closed {
		cancel()
	}
	return ctx
}

// install replaces the part, unless the body is closed.
func (b *body) install(part io.ReadCloser, end int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.part, b.end, b.broken, b.slow = part, end, nil, nil
	return true
}

// rest returns the request for the missing bytes. The caller's own conditions apply to the first
// response only.
func (b *body) rest(ctx context.Context) *http.Request {
	req := b.request.WithContext(ctx)
	req.Header = b.request.Header.Clone()
	for _, condition := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		req.Header.Del(condition)
	}
	req.Header.Set("Range", "bytes="+strconv.FormatInt(b.offset, 10)+"-")
	req.Header.Set("If-Range", b.tag)
	return req
}

// check returns the offset at which the part ends, or why the response is not the missing part.
func (b *body) check(resp *http.Response) (end int64, why string) {
	if resp.StatusCode != http.StatusPartialContent {
		return 0, "status " + strconv.Itoa(resp.StatusCode)
	}
	first, last, total, ok := contentRange(resp.Header["Content-Range"])
	switch {
	case !ok:
		return 0, "no valid Content-Range"
	case first != b.offset || total != b.length:
		return 0, fmt.Sprintf("bytes %d-%d of %d instead of %d-%d of %d", first, last, total, b.offset, b.length-1, b.length)
	case strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "multipart/byteranges"):
		return 0, "more than one range"
	case field.StrongTag(resp.Header) != b.tag:
		return 0, "another ETag"
	case resp.Uncompressed || resp.Header.Get("Content-Encoding") != b.encoding:
		return 0, "another Content-Encoding"
	case resp.ContentLength >= 0 && resp.ContentLength != last-first+1:
		return 0, "Content-Length and Content-Range differ"
	}
	return last + 1, ""
}

// contentRange parses "bytes 0-9/100" (RFC 9110 section 14.4). ok is false for an unknown total,
// and for anything else that is not one range.
func contentRange(values []string) (first, last, total int64, ok bool) {
	if len(values) != 1 {
		return 0, 0, 0, false
	}
	unit, rest, _ := strings.Cut(values[0], " ")
	span, size, _ := strings.Cut(rest, "/")
	from, to, _ := strings.Cut(span, "-")
	numbers := [3]int64{}
	for i, text := range [3]string{from, to, size} {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return 0, 0, 0, false
		}
		numbers[i] = int64(n)
	}
	first, last, total = numbers[0], numbers[1], numbers[2]
	return first, last, total, strings.EqualFold(unit, "bytes") && first <= last && last < total
}

// Close implements io.Closer. It ends a Read that waits or resumes.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.cancel != nil {
		b.cancel()
	}
	return b.part.Close()
}

package resilienthttp

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	smallBody   = 64 << 10 // bytes of a request body that are on their way in no time
	uploadChunk = 32 << 10 // bytes that are written at once, where a body writes itself
)

// upload is how far an attempt's request body has come. As long as it makes
// progress, a slow attempt is not held for a stuck one.
type upload struct {
	moved atomic.Int64 // when it made progress last: nanoseconds since the attempt's start
}

// longUpload reports whether the request's body may be on its way for long.
func (c *call) longUpload() bool {
	body, length := c.request.Body, c.request.ContentLength
	return body != nil && body != http.NoBody && (length <= 0 || length > smallBody)
}

// counted is the body with its reads counted from the attempt's start.
func (u *upload) counted(body io.ReadCloser, start time.Time) io.ReadCloser {
	reader := &uploadBody{body, u, start}
	if _, ok := body.(io.WriterTo); ok {
		return &uploadWriterTo{reader}
	}
	return reader
}

// progress is when the body moved last, since the attempt's start.
func (u *upload) progress() time.Duration { return time.Duration(u.moved.Load()) }

// uploadBody is a request body on its way.
type uploadBody struct {
	io.ReadCloser
	upload *upload
	start  time.Time
}

func (b *uploadBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.progress()
	return n, err
}

func (b *uploadBody) progress() { b.upload.moved.Store(int64(time.Since(b.start))) }

// uploadWriterTo is one that can write itself.
type uploadWriterTo struct{ *uploadBody }

// WriteTo implements io.WriterTo.
func (b *uploadWriterTo) WriteTo(w io.Writer) (int64, error) {
	return b.ReadCloser.(io.WriterTo).WriteTo(uploadWriter{w, b.uploadBody}) //nolint:errcheck // counted has made sure that it is one
}

// uploadWriter writes in chunks: a body may come in one piece, and be long on its
// way.
type uploadWriter struct {
	io.Writer
	body *uploadBody
}

func (w uploadWriter) Write(p []byte) (written int, err error) {
	for {
		chunk := p[written:min(written+uploadChunk, len(p))]
		n, err := w.Writer.Write(chunk)
		written += n
		w.body.progress()
		if err != nil || written == len(p) {
			return written, err
		}
		if n < len(chunk) {
			return written, io.ErrShortWrite
		}
	}
}

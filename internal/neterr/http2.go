package neterr

import (
	"errors"
	"strconv"
	"strings"
)

// The error codes of RFC 9113 section 7.
const (
	refusedStream   = 0x7
	enhanceYourCalm = 0xb
)

// streamError has the fields of net/http's error of an HTTP/2 stream, which errors.As converts.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (s streamError) Error() string {
	return "HTTP/2 stream error " + strconv.FormatUint(uint64(s.Code), 10)
}

func streamCode(err error, code uint32) bool {
	stream, ok := errors.AsType[streamError](err)
	return ok && stream.Code == code
}

// NotProcessed reports whether the server says that it has not processed the request:
// REFUSED_STREAM of HTTP/2.
func NotProcessed(err error) bool { return streamCode(err, refusedStream) }

// Throttled reports whether the server says that the client sends too much: ENHANCE_YOUR_CALM of
// HTTP/2, for a request or for the connection.
func Throttled(err error) bool {
	return streamCode(err, enhanceYourCalm) || anyInnermost(err, func(err error) bool {
		rest, ok := strings.CutPrefix(err.Error(), "http2: server sent GOAWAY and closed the connection; LastStreamID=")
		return ok && strings.HasPrefix(strings.TrimLeft(rest, "0123456789"), ", ErrCode=ENHANCE_YOUR_CALM,")
	})
}

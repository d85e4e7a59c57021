// Package download continues a download after its connection has broken. It asks for the missing
// bytes only, and the caller reads one body without a gap.
//
//	client := &http.Client{Transport: &download.Transport{}}
//	resp, err := client.Get("https://mirror.example/debian.iso")
//
// A retry begins a response again. It cannot help after the response's headers have arrived,
// because the caller has read a part of the body. So a large file over a connection that breaks
// once in a while never arrives whole without this package.
//
// The server must support it: its 200 response has a strong ETag, "Accept-Ranges: bytes" and a
// Content-Length, as those of nginx, Amazon S3 and http.ServeContent with an ETag. Other responses
// pass unchanged. See docs/downloads.md.
package download

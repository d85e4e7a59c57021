package download_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/download"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The connection breaks after ten bytes. The caller reads one body without a gap.
func Example() {
	file := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "letters.txt", time.Time{}, strings.NewReader("abcdefghijklmnopqrstuvwxyz"))
	})
	mirror := faulttest.New(nil, faulttest.Sequence(
		faulttest.Reply{Handler: file, Fault: faulttest.ResetMidBody, At: 10},
		file,
	))
	defer mirror.Close()

	client := &http.Client{Transport: &download.Transport{Base: &resilienthttp.Transport{}}}
	resp, err := client.Get(mirror.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	fmt.Println(string(content), err)
	for _, r := range mirror.Requests() {
		fmt.Printf("GET, Range: %q, If-Range: %q\n", r.Header.Get("Range"), r.Header.Get("If-Range"))
	}
	// Output:
	// abcdefghijklmnopqrstuvwxyz <nil>
	// GET, Range: "", If-Range: ""
	// GET, Range: "bytes=10-", If-Range: "\"v1\""
}

// The file changes on the server after the first ten bytes. The rest would belong to another
// version, so the download ends with the error that interrupted it.
func ExampleTransport_changed() {
	version := 0
	file := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version++
		w.Header().Set("ETag", fmt.Sprintf(`"v%d"`, version))
		http.ServeContent(w, r, "letters.txt", time.Time{}, strings.NewReader("abcdefghijklmnopqrstuvwxyz"))
	})
	mirror := faulttest.New(nil, faulttest.Reply{Handler: file, Fault: faulttest.Truncated, At: 10})
	defer mirror.Close()

	client := &http.Client{Transport: &download.Transport{}}
	resp, err := client.Get(mirror.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	fmt.Println(string(content))
	fmt.Println(err)
	// Output:
	// abcdefghij
	// download: after 10 of 26 bytes: unexpected EOF (resume: status 200)
}

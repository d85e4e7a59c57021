package resilienthttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// A large file is read again for each attempt, and never held in memory.
func ExampleTransport_largeFile() {
	api := faulttest.New(nil, faulttest.Sequence(faulttest.Status(http.StatusServiceUnavailable), faulttest.OK("stored")))
	defer api.Close()
	dir, err := os.MkdirTemp("", "upload")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of an example
	path := filepath.Join(dir, "report.csv")
	if err := os.WriteFile(path, []byte("invoice,amount\n001,100\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	client := resilienthttp.NewClient()

	upload := func(ctx context.Context) (*http.Response, error) {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, api.URL, file)
		if err != nil {
			return nil, err
		}
		req.ContentLength = info.Size()
		req.GetBody = func() (io.ReadCloser, error) { return os.Open(path) } // for each retry
		return client.Do(req)
	}

	resp, err := upload(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "attempts:", api.Total())
	// Output: 200 attempts: 2
}
